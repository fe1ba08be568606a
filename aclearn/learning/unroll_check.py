"""Whether an unroll makes sense: what the codec cannot know without the run's environment."""

from __future__ import annotations

from math import prod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import WireError
from aclearn.types import ActionSpec, LeafSpec, ObservationSpec, Unroll

#: A log-probability above 0 by rounding in float32.
_LOG_PROB_SLACK = 1e-5


def check_unroll(unroll: Unroll, *, observation: ObservationSpec, action: ActionSpec) -> None:
    """Raises when the arrays of an unroll do not fit each other or the run's environment.

    Args:
        unroll: a decoded unroll: dtypes and numbers of dimensions are known to be right.
        observation: of the environment.
        action: of the environment.

    Raises:
        WireError: with the reason "bad_unroll" and a detail that names the array.
    """
    T, B = unroll.actions.shape
    if T < 1 or B < 1:
        _refuse(f"actions: expected at least one step and one environment, got {(T, B)}")
    if unroll.env_steps_after < unroll.env_steps_before:
        _refuse("env_steps_after: less than env_steps_before")
    for name in ("behaviour_log_probs", "rewards", "terminated", "truncated", "valid"):
        _expect_shape(name, getattr(unroll, name), (T, B))
    _expect_shape("versions", unroll.versions, (T,))
    _check_frames(unroll, T, B, observation.sole)
    _check_values(unroll, action.count)


def _check_frames(unroll: Unroll, T: int, B: int, leaf: LeafSpec) -> None:
    older, *size = leaf.older.stop, *leaf.shape[1:]
    older_shape = (older, *size)
    _expect("frames", unroll.frames, (T + 1, B, leaf.shape[0] - older, *size), leaf.dtype)
    if leaf.frame_stack == 1:
        if not (unroll.history is unroll.reset_index is unroll.reset_history is None):
            _refuse("history, reset_index, reset_history: expected none without a frame stack")
        return
    if unroll.history is None:
        _refuse("history: missing, the observations are stacks of frames")
    _expect("history", unroll.history, (B, *older_shape), leaf.dtype)
    index, reset_history = unroll.reset_index, unroll.reset_history
    if index is None or reset_history is None:
        if index is not reset_history:
            _refuse("reset_index and reset_history: expected both or none")
        return
    _expect("reset_history", reset_history, (index.size, *older_shape), leaf.dtype)
    if index.size > T * B:
        _refuse("reset_index: more resets than observations")
    if index.size and not (index.min() >= B and index.max() < (T + 1) * B):
        _refuse(f"reset_index: expected indices from {B} to {(T + 1) * B - 1}")
    if np.unique(index).size != index.size:
        _refuse("reset_index: the same observation twice")


def _check_values(unroll: Unroll, actions: int) -> None:
    if unroll.actions.min() < 0 or unroll.actions.max() >= actions:
        _refuse(f"actions: expected values from 0 to {actions - 1}")
    if unroll.versions.min() < 0:
        _refuse("versions: expected values of at least 0")
    _expect_finite("behaviour_log_probs", unroll.behaviour_log_probs)
    if unroll.behaviour_log_probs.max() > _LOG_PROB_SLACK:
        _refuse("behaviour_log_probs: a probability above 1")
    _expect_finite("rewards", unroll.rewards)
    for name in ("frames", "history", "reset_history"):
        array = getattr(unroll, name)
        if array is not None and array.dtype == np.float32:
            _expect_finite(name, array)


def _expect(name: str, array: NDArray[Any], shape: tuple[int, ...], dtype: str) -> None:
    if array.dtype != np.dtype(dtype):
        _refuse(f"{name}: expected {dtype}, got {array.dtype}")
    _expect_shape(name, array, shape)


def _expect_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        _refuse(f"{name}: expected shape {shape}, got {array.shape}")


def _expect_finite(name: str, array: NDArray[Any]) -> None:
    if prod(array.shape) and not np.isfinite(array).all():
        _refuse(f"{name}: NaN or infinity")


def _refuse(detail: str) -> NoReturn:
    raise WireError("bad_unroll", detail)
