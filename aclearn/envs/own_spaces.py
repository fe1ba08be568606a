"""Gymnasium's spaces of the observations and actions that a policy was made for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from aclearn.types import ActionSpec, ObservationForm, ObservationPart, ObservationSpec
from aclearn.types.action_spec import ActionPart
from aclearn.types.nested import Path, nested


def observation_space(observation: ObservationSpec, form: ObservationForm) -> spaces.Space[Any]:
    """The space of an environment's observations, of those parts that a policy sees.

    Numbers have the bounds of their dtype. A stack of images has an axis of the frames in front.
    """
    return _nested_space(
        {part.path: _seen(part, observation[part.leaf].high) for part in form.parts}
    )


def action_space(spec: ActionSpec) -> spaces.Space[Any]:
    """The space of an environment's actions, as `ActionSpec.to_env` gives them."""
    return _nested_space({part.path: _taken(part) for part in spec.parts})


def _seen(part: ObservationPart, high: int) -> spaces.Space[Any]:
    if part.kind == "choices":
        return _choices(part.counts, part.starts, part.shape, part.dtype)
    if part.kind == "switches":
        return spaces.MultiBinary(part.shape)
    dtype = np.dtype(part.dtype)
    low, most = -np.inf, np.inf
    if part.kind == "image":
        low, most = 0, high
    elif dtype.kind in "iu":
        low, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    elif dtype.kind == "b":
        low, most = 0, 1
    return spaces.Box(low, most, part.stacked_shape, dtype.type)


def _taken(part: ActionPart) -> spaces.Space[Any]:
    if part.counts:
        return _choices(part.counts, part.starts, part.shape, part.dtype)
    dtype = np.dtype(part.dtype).type
    low, high = (np.array(bound, dtype).reshape(part.shape) for bound in (part.low, part.high))
    return spaces.Box(low, high, part.shape, dtype)


def _choices(
    counts: tuple[int, ...], starts: tuple[int, ...], shape: tuple[int, ...], dtype: str
) -> spaces.Space[Any]:
    if not shape:
        return spaces.Discrete(counts[0], start=starts[0])
    sizes, first = (np.array(each).reshape(shape) for each in (counts, starts))
    return spaces.MultiDiscrete(sizes, dtype=np.dtype(dtype).type, start=first)


def _nested_space(parts: Mapping[Path, spaces.Space[Any]]) -> spaces.Space[Any]:
    built: spaces.Space[Any] = nested(parts, as_dict=spaces.Dict, as_tuple=spaces.Tuple)
    return built
