"""An environment's action space and action masks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aclearn.envs.contract import ContractError
from aclearn.errors import EnvironmentFailure
from aclearn.types import ActionSpec
from aclearn.types.action_spec import ActionPart

#: Bounds of this size mean unbounded.
_LARGEST_BOUND = 1e10


def read_actions(space: Any, name: str, *, squash: bool = False) -> ActionSpec:
    """The actions of an action space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a Dict or Tuple of these.

    Raises:
        EnvironmentFailure: actions that are not supported, or that have no numbers or no bounds for
            `squash`.
    """
    parts = tuple(_parts(space, name, ()))
    if not any(part.counts or part.low for part in parts):
        raise EnvironmentFailure(f"environment {name}: its actions {space} have nothing to choose")
    spec = ActionSpec.of(parts, squash=squash)
    if squash and not spec.numbers:
        raise EnvironmentFailure(
            f"environment {name}: env.squash_actions brings the numbers of a Box between bounds, "
            f"and its actions {space} have no Box; set env.squash_actions: false"
        )
    bounds = [bound for part in parts for bound in (*part.low, *part.high)]
    if squash and not np.isfinite(bounds).all():
        raise EnvironmentFailure(
            f"environment {name}: env.squash_actions brings numbers between bounds, and its "
            f"actions {space} have none; set env.squash_actions: false or wrap the environment "
            "(gymnasium.wrappers.RescaleAction)"
        )
    return spec


def _parts(space: Any, name: str, path: tuple[str | int, ...]) -> Iterator[ActionPart]:
    where = f" (in {'.'.join(map(str, path))})" if path else ""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in inner:
            if isinstance(space, spaces.Dict) and not isinstance(key, str):
                raise EnvironmentFailure(
                    f"environment {name}: its Dict actions have the key {key!r}{where}, "
                    "expected text; wrap the environment (gymnasium.wrappers.TransformAction)"
                )
            yield from _parts(part, name, (*path, key))
    elif isinstance(space, spaces.Discrete):
        counts, starts = (int(space.n),), (int(space.start),)
        yield ActionPart(path, (), str(space.dtype), counts, starts)
    elif isinstance(space, spaces.MultiDiscrete):
        several = (tuple(each.flatten().tolist()) for each in (space.nvec, space.start))
        yield ActionPart(path, space.shape, str(space.dtype), *several)
    elif isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        yield ActionPart(path, space.shape, str(space.dtype), (2,) * size, (0,) * size)
    elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        wide = (each.astype(np.float64).flatten() for each in (space.low, space.high))
        low, high = (np.where(np.abs(w) < _LARGEST_BOUND, w, np.copysign(np.inf, w)) for w in wide)
        bounds = {"low": tuple(low.tolist()), "high": tuple(high.tolist())}
        yield ActionPart(path, space.shape, str(space.dtype), **bounds)
    else:
        raise EnvironmentFailure(
            f"environment {name}: {type(space).__name__} actions are not supported: "
            f"{space}{where}. Expected Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a "
            "Dict or Tuple of these; wrap the environment (gymnasium.wrappers.TransformAction)"
        )


def mask_row(given: Any, action: ActionSpec, *, where: str, terminal: bool) -> NDArray[np.bool_]:
    """The allowed actions `[A]` that an environment says.

    Args:
        terminal: the episode is over, and nothing is chosen or valued, so that nothing needs to be
            said or allowed. Where it is only cut, the value of an action that was forbidden must
            not enter what is bootstrapped.

    Raises:
        ContractError: there is no mask, it does not fit, or it leaves a choice nothing.
    """
    if given is None:
        if terminal:
            return np.ones(action.mask_width, np.bool_)
        raise ContractError("action_mask", f"{where}: missing; only a terminal step needs none")
    parts = given if isinstance(given, tuple | list) else (given,)
    said = np.concatenate([np.ravel(part) for part in parts])
    row = said.astype(np.bool_)
    if not (said == row).all():  # 0 and −∞ to add to logits, for instance
        raise ContractError("action_mask", f"{where}: expected 1 (allowed) and 0, got {said}")
    if row.shape != (action.mask_width,):
        raise ContractError("action_mask", f"{where}: expected {action.mask_width}, got {row.size}")
    if not action.allow_something(row):
        if not terminal:
            raise ContractError("action_mask", f"{where}: nothing allowed: {row}")
        row[:] = True
    return row
