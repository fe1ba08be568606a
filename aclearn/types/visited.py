"""Observations that a policy visited, with the actions that were allowed there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.types.observation_spec import Observations, row_count
from aclearn.types.policy_output import State


@dataclass(frozen=True, eq=False)
class Visited:
    """N visited observations; empty by default.

    For a policy with a memory they are K sequences, one after another, of T consecutive
    observations of an environment each: N = K · T. Without a memory T is 1.

    Attributes:
        observations: leaf → `[N, *shape]`.
        masks: `[N, A]` bool, the actions that were allowed there; None: all.
        length: T.
        valid: `[N]` bool, False where no action was taken: nothing is measured there, and the next
            observation begins an episode. None: all.
        state: `[K, n]` each, of the uncompressed policy before each sequence; (), or zeros where
            another one acted whose state means nothing to it.
    """

    observations: Observations = field(default_factory=dict)
    masks: NDArray[np.bool_] | None = None
    length: int = 1
    valid: NDArray[np.bool_] | None = None
    state: State = ()

    @classmethod
    def probe(cls, observations: Observations, state: tuple[int, ...]) -> Visited:
        """These observations, to a policy with a state as one sequence."""
        return cls(observations, length=row_count(observations) if state else 1)

    def __len__(self) -> int:
        return row_count(self.observations)

    @property
    def sequences(self) -> int:
        """K."""
        return len(self) // self.length

    @property
    def starts(self) -> NDArray[np.bool_]:
        """`[T, K]` bool, observations before which the state is zeroed."""
        starts = np.zeros((self.length, self.sequences), np.bool_)
        if self.valid is not None:
            starts[1:] = ~self.by_time(self.valid)[:-1]
        return starts

    def by_time(self, rows: NDArray[Any]) -> NDArray[Any]:
        """An array `[N, …]` as `[T, K, …]`."""
        return rows.reshape(self.sequences, self.length, *rows.shape[1:]).swapaxes(0, 1)

    def take(self, which: Any) -> Visited:
        """Some of the sequences, by a slice, indices or a mask."""

        def some(rows: NDArray[Any]) -> NDArray[Any]:
            kept: NDArray[Any] = rows.reshape(self.sequences, self.length, *rows.shape[1:])[which]
            return kept.reshape(-1, *rows.shape[1:])

        return Visited(
            {name: some(leaf) for name, leaf in self.observations.items()},
            None if self.masks is None else some(self.masks),
            self.length,
            None if self.valid is None else some(self.valid),
            tuple(part[which] for part in self.state),
        )

    def needed(self, count: int, order: NDArray[np.int_]) -> NDArray[np.int_]:
        """The first sequences of this order that have `count` valid observations, or all."""
        if count < 1 or self.valid is None:
            return order[: -(-count // self.length)]
        valid = self.valid.reshape(self.sequences, self.length)[order].sum(1)
        return order[: np.searchsorted(np.cumsum(valid), count) + 1]

    def measured(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Those of an array `[N, …]` on which something is measured."""
        return rows if self.valid is None else rows[self.valid]

    @classmethod
    def joined(cls, parts: Iterable[Visited]) -> Visited:
        """All parts, one after another; all of them have masks, valid and state, or none.

        Sequences of another length than the last part's are left out.
        """
        some = [part for part in parts if part.observations]
        some = [part for part in some if part.length == some[-1].length]
        if not some:
            return cls()
        observations = {
            name: np.concatenate([part.observations[name] for part in some])
            for name in some[0].observations
        }
        masks = [part.masks for part in some if part.masks is not None]
        valid = [part.valid for part in some if part.valid is not None]
        return cls(
            observations,
            np.concatenate(masks) if masks else None,
            some[0].length,
            np.concatenate(valid) if valid else None,
            tuple(map(np.concatenate, zip(*(part.state for part in some), strict=True))),
        )
