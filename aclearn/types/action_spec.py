"""What a policy chooses: the actions of an environment, as they are sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ActionSpec:
    """One of `count` discrete actions in each environment.

    Attributes:
        count: number of actions; a policy samples 0 to count-1.
        start: the environment's own number of the first action.
        kind: "discrete".
        dtype: of a sampled action.
        shape: of one sampled action.
    """

    count: int
    start: int = 0
    kind: Literal["discrete"] = "discrete"
    dtype: Literal["int32"] = "int32"
    shape: tuple[int, ...] = ()

    def to_env(self, actions: NDArray[Any]) -> NDArray[np.int64]:
        """Sampled actions `[B]` as those that the environments take, `[B]` int64.

        Raises:
            ValueError: they are not integers from 0 to count-1.
        """
        if actions.dtype.kind not in "iu":
            raise ValueError(f"actions: expected integers, got {actions.dtype}")
        # not a formality: an action beyond its set makes ale-py 0.12.1 hang or end the process
        listed = actions.tolist()  # for some tens of actions faster than two reductions by numpy
        if min(listed) < 0 or max(listed) >= self.count:
            raise ValueError(f"actions: expected 0 to {self.count - 1}, got {listed}")
        return actions.astype(np.int64) + self.start
