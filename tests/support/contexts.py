"""Contexts of chains whose policies see one array."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from aclearn.types import OBSERVATION, Visited
from compress import Context


def seen(observations: NDArray[Any], masks: NDArray[Any] | None = None) -> Visited:
    """The observations `[N, *shape]` as those of one leaf, with masks `[N, A]`."""
    return Visited({OBSERVATION: observations}, masks)


def context_of(
    observations: NDArray[Any] | None = None,
    *,
    held_out: NDArray[Any] | None = None,
    **settings: Any,
) -> Context:
    """A context with these observations `[N, *shape]`."""
    given = (Visited() if leaf is None else seen(leaf) for leaf in (observations, held_out))
    return Context(*given, **settings)
