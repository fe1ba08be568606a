"""Environments that can be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import ArgumentError, EnvironmentFailure, words_of

if TYPE_CHECKING:
    from aclearn.config import EnvConfig

#: Pictures a second where the environment does not say it.
_USUAL_RATE = 30.0


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


def picture_of(env: Any, name: str) -> Any:
    """What an environment's `render` gives; an array is `[H, W, 3]` uint8 in "rgb_array" mode.

    Raises:
        EnvironmentFailure: it cannot be drawn; says why.
    """
    try:
        return env.render()
    except Exception as error:  # the user's code, or a package that is missing
        raise EnvironmentFailure(
            f"environment {name} cannot be drawn ({words_of(error)})"
        ) from error


def picture_rate(env: Any) -> float:
    """Pictures a second of an environment, by its metadata."""
    return float((getattr(env, "metadata", None) or {}).get("render_fps") or _USUAL_RATE)


def as_colours(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A grey picture `[H, W]` as `[H, W, 3]`."""
    return np.repeat(grey[..., None], 3, axis=2)
