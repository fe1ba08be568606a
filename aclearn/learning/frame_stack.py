"""Frame stacks rebuilt from unrolls that contain each frame once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.types import LeafSpec, Unroll


def rebuild_observations(unroll: Unroll, name: str, leaf: LeafSpec, out: NDArray[Any]) -> None:
    """Write a leaf's observations `[T+1, B, …]` into `out`, images as `[T+1, B, H, W, S·C]`.

    The older frames of an observation are those of the steps before it, of `history` at the start
    of the unroll, and of `reset_history` after an autoreset.
    """
    frames = unroll.observations[name]
    if len(leaf.shape) < 3:
        out[...] = frames
        return
    length, width, channels = frames.shape[:3]
    older = leaf.frame_stack - 1
    for age in range(leaf.frame_stack):  # age 0 is the newest frame
        block = slice((older - age) * channels, (older - age + 1) * channels)
        out[age:, ..., block] = np.moveaxis(frames[: length - age], 2, -1)
        if age:
            first = unroll.history[name].reshape(width, older, *frames.shape[2:])
            before = np.moveaxis(first[:, older - age :][:, :length], (0, 2), (1, -1))
            out[:age, ..., block] = before
    if older and unroll.reset_index is not None:  # observations soon after an autoreset
        near = np.unique(unroll.reset_index[:, None] + width * np.arange(older))
        t, b = np.divmod(near[near < length * width], width)
        out[t, b] = np.moveaxis(chosen_observations(unroll, name, leaf, t, b), 1, -1)


def chosen_observations(
    unroll: Unroll, name: str, leaf: LeafSpec, t: NDArray[np.intp], b: NDArray[np.intp]
) -> NDArray[Any]:
    """Observations `(t, b)` of a leaf, `[N, *shape]`, images as `[N, S·C, H, W]`.

    Equal to `rebuild_observations`, at the cost of the chosen ones alone.
    """
    frames, older = unroll.observations[name], leaf.frame_stack - 1
    if older == 0:
        return np.ascontiguousarray(frames[t, b])
    begun, history = np.zeros(len(t), np.intp), unroll.history[name][b]
    if unroll.reset_index is not None:
        # in order of time, so that the later of two resets wins
        for k in np.argsort(unroll.reset_index, kind="stable"):
            reset_t, column = divmod(int(unroll.reset_index[k]), frames.shape[1])
            after = (b == column) & (t >= reset_t)
            begun[after], history[after] = reset_t, unroll.reset_history[name][k]
    frame = frames.shape[2:]
    history = history.reshape(len(t), older, *frame)
    out = np.empty((len(t), older + 1, *frame), frames.dtype)
    for age in range(older + 1):  # age 0 is the newest frame
        there = t - age >= begun
        out[there, older - age] = frames[t[there] - age, b[there]]
        position = older - age + t[~there] - begun[~there]
        out[~there, older - age] = history[~there, position]
    return out.reshape(len(t), *leaf.shape)
