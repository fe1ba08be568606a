"""Environments that can be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aclearn.errors import ArgumentError

if TYPE_CHECKING:
    from aclearn.config import EnvConfig


def drawn(env: EnvConfig, mode: str = "rgb_array") -> EnvConfig:
    """The configuration of the same environment with gymnasium's `render_mode`.

    An Atari game shows the screens that the policy sees, so its mode is "rgb_array".

    Raises:
        ArgumentError: it cannot be drawn in this mode.
    """
    if env.id.startswith("resident:"):
        raise ArgumentError(
            f"environment {env.id}: resident environments have no pictures; name the environment "
            "of gymnasium in env.id"
        )
    if not env.is_atari:
        return env.model_copy(update={"kwargs": {**env.kwargs, "render_mode": mode}})
    if mode != "rgb_array":
        raise ArgumentError(f"render_mode: Atari games have rgb_array only, got {mode!r}")
    return env
