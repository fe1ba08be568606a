"""Specifications of environments that show one array."""

from __future__ import annotations

from aclearn.types import ActionSpec, EnvSpec, ObservationSpec


def plain_spec(shape: tuple[int, ...], dtype: str, actions: int, frame_stack: int = 1) -> EnvSpec:
    """One leaf of that shape, and `actions` discrete actions."""
    return EnvSpec(ObservationSpec.plain(shape, dtype, frame_stack), ActionSpec.discrete(actions))
