"""Observations that a policy visited, with the actions that were allowed there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.types.observation_spec import Observations, row_count


@dataclass(frozen=True, eq=False)
class Visited:
    """N visited observations; empty by default.

    Attributes:
        observations: leaf → `[N, *shape]`.
        masks: `[N, A]` bool, the actions that were allowed there; None: all.
    """

    observations: Observations = field(default_factory=dict)
    masks: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return row_count(self.observations)

    def rows(self, rows: Any) -> Visited:
        """Some of them, by a slice, indices or a mask."""
        masks = None if self.masks is None else self.masks[rows]
        return Visited({name: leaf[rows] for name, leaf in self.observations.items()}, masks)

    @classmethod
    def joined(cls, parts: Iterable[Visited]) -> Visited:
        """All parts, one after another; all of them have masks, or none."""
        some = [part for part in parts if part.observations]
        if not some:
            return cls()
        masks = [part.masks for part in some if part.masks is not None]
        observations = {
            name: np.concatenate([part.observations[name] for part in some])
            for name in some[0].observations
        }
        return cls(observations, np.concatenate(masks) if masks else None)
