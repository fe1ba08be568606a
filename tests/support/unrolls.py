"""Unrolls for tests: empty ones that a test fills in, and random ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclearn.types import OBSERVATION, Unroll


def quiet_unroll(frames: np.ndarray, **changes: Any) -> Unroll:
    """An unroll of frames `[T+1, B, ...]` of one leaf, without events except `changes`.

    `history` and `reset_history` are those of that leaf.
    """
    for name in ("history", "reset_history"):
        older = changes.get(name)
        changes[name] = {} if older is None else {OBSERVATION: older}
    T, B = frames.shape[0] - 1, frames.shape[1]
    no = np.zeros((T, B), np.bool_)
    fields = {
        "generation": 0,
        "env_steps_before": 0,
        "env_steps_after": T * B,
        "dropped": {},
        "observations": {OBSERVATION: frames},
        "reset_index": None,
        "actions": np.zeros((T, B), np.int32),
        "behaviour_log_prob": np.zeros((T, B), np.float32),
        "rewards": np.zeros((T, B), np.float32),
        "terminated": no,
        "truncated": no,
        "valid": ~no,
        "versions": np.zeros(T, np.int64),
        "chains": ["none"],
    }
    return Unroll(**{**fields, **changes})


def random_unroll(
    seed: int,
    T: int,
    B: int,
    *,
    frame: tuple[int, ...] = (1, 4, 5),
    actions: int = 4,
    **changes: Any,
) -> Unroll:
    """Images in stacks of two; flat floats without a stack if `frame` has one axis."""
    rng = np.random.default_rng(seed)
    if len(frame) == 3:
        frames = rng.integers(0, 256, (T + 1, B, *frame), np.uint8)
        history = rng.integers(0, 256, (B, *frame), np.uint8)
    else:
        frames, history = rng.normal(size=(T + 1, B, *frame)).astype(np.float32), None
    fields = {
        "history": history,
        "actions": rng.integers(0, actions, (T, B)).astype(np.int32),
        "behaviour_log_prob": rng.uniform(-2, -0.5, (T, B)).astype(np.float32),
        "rewards": rng.normal(size=(T, B)).astype(np.float32),
        "terminated": rng.random((T, B)) < 0.2,
        "truncated": rng.random((T, B)) < 0.2,
        "valid": rng.random((T, B)) < 0.7,
        "versions": rng.integers(0, 50, T),
    }
    return quiet_unroll(frames, **{**fields, **changes})
