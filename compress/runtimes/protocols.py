"""What every runtime offers: weights in, action parameters and values out."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from compress.graphs.policy_graph import Tensors


class Executable(Protocol):
    """One version of a policy, ready to run: never changes, any number of threads may use it."""

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`."""


class PolicyRuntime(Protocol):
    """What acts: logits of the policy version that it holds."""

    @property
    def executable(self) -> Executable:
        """The version that it holds now, which later swaps leave as it is; needs a `swap` before.

        For whoever runs a policy in one thread and swaps it in another.
        """

    def swap(self, tensors: Tensors) -> None:
        """Run these weights from the next call on, whole or not at all.

        Raises:
            RefusedTensors: they do not fit or are not finite; the old ones go on.
        """

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` of observations `[N, *shape]`."""
