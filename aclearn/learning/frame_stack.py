"""Frame stacks rebuilt from unrolls that carry each frame once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.types import Unroll

_NO_HISTORY = "unroll of stacked frames without the older frames of an observation"


def rebuild_observations(unroll: Unroll, out: NDArray[Any], *, frame_stack: int) -> None:
    """Write an unroll's observations `[T+1, B, …]` into `out`, images as `[T+1, B, H, W, S·C]`.

    Each frame travels once; the older frames of an observation are those of the steps before it,
    of `history` at the start of the unroll, and of `reset_history` after an autoreset.
    """
    frames = unroll.frames
    if frames.ndim < 5:
        out[...] = frames
        return
    length, _, channels = frames.shape[:3]
    older = frame_stack - 1
    for age in range(frame_stack):  # age 0 is the newest frame
        block = slice((older - age) * channels, (older - age + 1) * channels)
        out[age:, ..., block] = np.moveaxis(frames[: length - age], 2, -1)
        for t in range(min(age, length)):
            out[t, ..., block] = _history_block(unroll.history, older - age + t, channels)
    if unroll.reset_index is None:
        return
    width = frames.shape[1]
    # in order of time, so that a second reset within the stack's reach has the last word
    for k in np.argsort(unroll.reset_index, kind="stable"):
        reset_t, b = divmod(int(unroll.reset_index[k]), width)
        history = unroll.reset_history[k : k + 1] if unroll.reset_history is not None else None
        for t in range(reset_t, min(reset_t + older, length)):
            for position in range(older - (t - reset_t)):
                block = slice(position * channels, (position + 1) * channels)
                out[t, b, ..., block] = _history_block(history, position + t - reset_t, channels)[0]


def chosen_observations(
    unroll: Unroll, t: NDArray[np.intp], b: NDArray[np.intp], *, frame_stack: int
) -> NDArray[Any]:
    """Some of an unroll's observations, `[N, *shape]`, images as `[N, S·C, H, W]`.

    As `rebuild_observations` has them, at the cost of those alone.

    Args:
        unroll: checked.
        t: `[N]`, from 0 to T.
        b: `[N]`, from 0 to B − 1.
        frame_stack: S.

    Raises:
        ValueError: the older frames are missing.
    """
    frames = unroll.frames
    if frames.ndim < 5 or frame_stack == 1:
        return np.ascontiguousarray(frames[t, b])
    if unroll.history is None:
        raise ValueError(_NO_HISTORY)
    channels, older = frames.shape[2], frame_stack - 1
    out = np.empty((len(t), frame_stack * channels, *frames.shape[3:]), frames.dtype)
    begun, history = np.zeros(len(t), np.intp), unroll.history[b]
    if unroll.reset_index is not None and unroll.reset_history is not None:
        # in order of time, so that of two resets before an observation the later has the last word
        for k in np.argsort(unroll.reset_index, kind="stable"):
            reset_t, column = divmod(int(unroll.reset_index[k]), frames.shape[1])
            after = (b == column) & (t >= reset_t)
            begun[after], history[after] = reset_t, unroll.reset_history[k]
    for age in range(frame_stack):  # age 0 is the newest frame
        block = slice((older - age) * channels, (older - age + 1) * channels)
        here = t - age >= begun
        out[here, block] = frames[t[here] - age, b[here]]
        for k in np.flatnonzero(~here):
            position = older - age + int(t[k] - begun[k])
            out[k, block] = history[k, position * channels : (position + 1) * channels]
    return out


def _history_block(history: NDArray[Any] | None, position: int, channels: int) -> NDArray[Any]:
    if history is None:
        raise ValueError(_NO_HISTORY)
    return np.moveaxis(history[:, position * channels : (position + 1) * channels], 1, -1)
