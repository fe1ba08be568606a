"""Frame stacks from frames that were sent once, against one deque of frames per environment."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from aclearn.learning.frame_stack import chosen_observations, rebuild_observations
from aclearn.types import (
    OBSERVATION,
    LeafSpec,
    Unroll,
)
from tests.support.unrolls import quiet_unroll

H, W = 2, 3


@dataclass
class Film:
    """The stacks `[T+1, B, S·C, H, W]` of B environments in T steps, and their resets.

    Made with one deque of S frames per environment.
    """

    stacks: NDArray[np.uint8]
    resets: set[tuple[int, int]]
    channels: int

    @classmethod
    def shoot(cls, T: int, B: int, S: int, C: int, resets: set[tuple[int, int]]) -> Film:
        rng = np.random.default_rng(T * 1000 + B * 100 + S * 10 + C)

        def frame() -> NDArray[np.uint8]:
            return rng.integers(0, 256, (C, H, W), np.uint8)

        deques = [deque((frame() for _ in range(S)), maxlen=S) for _ in range(B)]
        stacks = np.empty((T + 1, B, S * C, H, W), np.uint8)
        for t in range(T + 1):
            for b in range(B):
                if t > 0:
                    # an episode begins with a new stack
                    for _ in range(S if (t, b) in resets else 1):
                        deques[b].append(frame())
                stacks[t, b] = np.concatenate(list(deques[b]))
        return cls(stacks, resets, C)

    def as_unroll(self, order: list[tuple[int, int]] | None = None) -> Unroll:
        """The unroll by its definition; resets in any order."""
        older, B = self.stacks[:, :, : -self.channels], self.stacks.shape[1]
        stacked = older.shape[2] > 0
        order = sorted(self.resets) if order is None else order
        has_resets = stacked and bool(order)
        return quiet_unroll(
            np.ascontiguousarray(self.stacks[:, :, -self.channels :]),
            history=older[0].copy() if stacked else None,
            reset_index=np.array([t * B + b for t, b in order], np.int32) if has_resets else None,
            reset_history=np.stack([older[t, b] for t, b in order]) if has_resets else None,
        )

    def check(self, unroll: Unroll, S: int) -> None:
        T_plus_1, B, stacked_channels, *_ = self.stacks.shape
        out = np.full((T_plus_1, B, H, W, stacked_channels), 77, np.uint8)
        leaf = LeafSpec((stacked_channels, H, W), "uint8", S)
        rebuild_observations(unroll, OBSERVATION, leaf, out)
        np.testing.assert_array_equal(np.moveaxis(out, -1, 2), self.stacks)
        # also alone: all of them in any order, and any one twice
        t, b = np.divmod(np.random.default_rng(0).permutation(T_plus_1 * B), B)
        t, b = np.append(t, t[0]), np.append(b, b[0])
        chosen = chosen_observations(unroll, OBSERVATION, leaf, t, b)
        np.testing.assert_array_equal(chosen, self.stacks[t, b])
        assert chosen.flags.c_contiguous


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_rebuilt_stacks_are_those_that_the_environments_showed(data: st.DataObject) -> None:
    T, B = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 3))
    S, C = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.sampled_from([1, 3]))
    places = st.tuples(st.integers(1, T), st.integers(0, B - 1))
    resets = data.draw(st.sets(places, max_size=6))
    order = data.draw(st.permutations(sorted(resets)))
    film = Film.shoot(T, B, S, C, resets)
    film.check(film.as_unroll(list(order)), S)


def test_flat_observations_are_taken_as_they_are() -> None:
    frames = np.random.default_rng(1).normal(size=(4, 2, 5)).astype(np.float32)
    out = np.zeros((4, 2, 5), np.float32)
    leaf = LeafSpec((5,), "float32")
    rebuild_observations(quiet_unroll(frames), OBSERVATION, leaf, out)
    np.testing.assert_array_equal(out, frames)
    t, b = np.array([3, 0]), np.array([1, 0])
    chosen = chosen_observations(quiet_unroll(frames), OBSERVATION, leaf, t, b)
    np.testing.assert_array_equal(chosen, frames[t, b])
