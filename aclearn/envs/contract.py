"""What an environment may give and what it gets: one rule, for a run and for `check_env`.

It gives, each in any form whose meaning is plain:

* `reset(seed=…)` → `(observation, info)`, `step(action)` → `(observation, reward, terminated,
  truncated, info)`, as tuples or lists; `info` is a dict.
* Observations: arrays, scalars or nested lists of the shape of the space. Numbers are converted
  where that changes no value: integers of any width that fit, never floats for whole numbers.
  Floats may be rounded to float32.
* Rewards: any real number, or an array of one. Flags: false or true, 0 or 1, or an array of one.
* Rewards and observed numbers are at most `LARGEST_NUMBER` in magnitude, and not NaN.

It gets actions as its `action_space.sample()` gives them, see `ActionSpec.to_env`. Everything else
is a fault of the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import kind_of
from aclearn.types.bounds import LARGEST_NUMBER

_RANGE = f"expected a number from {-LARGEST_NUMBER:g} to {LARGEST_NUMBER:g}"
_OLD_API = "this is the API of gym before 0.26; derive the class from gymnasium.Env, with"
_RESET = "reset(self, *, seed=None, options=None), which returns (observation, info)"
_STEP = "a step that returns (observation, reward, terminated, truncated, info)"


class ContractError(Exception):
    """What an environment gave is not what it may give.

    Attributes:
        reason: a word for the counter of faults.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def begin_episode(env: Any, seed: int | None) -> tuple[Any, dict[str, Any]]:
    """Reset an environment; raises `ContractError` for another signature or result."""
    try:
        result = env.reset(seed=seed)
    except TypeError as error:
        if "unexpected keyword argument 'seed'" not in str(error):
            raise
        raise ContractError("reset_result", f"reset takes no seed: {_OLD_API} {_RESET}") from error
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise ContractError("reset_result", f"reset returned {kind(result)}: {_OLD_API} {_RESET}")
    return result[0], info_of(result[1])


def step_result(result: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """The five parts of a step's result; raises `ContractError` if it has others."""
    if not isinstance(result, tuple | list) or len(result) != 5:
        is_old = isinstance(result, tuple | list) and len(result) == 4
        why = f"{_OLD_API} {_STEP}" if is_old else f"expected {_STEP}"
        raise ContractError("step_result", f"step returned {kind(result)}: {why}")
    observation, reward, terminated, truncated, info = result
    return observation, reward, terminated, truncated, info_of(info)


def info_of(given: Any) -> dict[str, Any]:
    """The info of a reset, a step or an agent; raises `ContractError` if it is no dict."""
    if not isinstance(given, Mapping):
        raise ContractError("info", f"info is {kind(given)}, expected a dict")
    return dict(given) if not isinstance(given, dict) else given


def reward_of(given: Any) -> float:
    """The reward; see `in_range` for its size."""
    if isinstance(given, Real):
        return float(given)
    return float(_only(given, "reward", "a number"))


def flag_of(given: Any, name: str) -> bool:
    """Whether an episode has ended."""
    if isinstance(given, bool | np.bool_):
        return bool(given)
    number = _only(given, "flag", "True or False", name)
    if number not in (0, 1):
        raise ContractError("flag", f"{name} is {kind(given)}, expected True or False")
    return bool(number)


def numbers_of(given: Any, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """An observation's numbers as an array that a cast to `dtype` does not change.

    Args:
        dtype: that they will be cast to; floats may be rounded to it.
    """
    try:
        array = np.asarray(given)
    except ValueError as error:  # lists of different lengths
        raise ContractError("observation_shape", f"{name} is no array: {error}") from error
    # NumPy would silently broadcast a wrong shape
    if array.shape != shape:
        said = f"{name} has the shape {array.shape}, its space says {shape}"
        raise ContractError("observation_shape", said)
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in ("biuf" if dtype.kind == "f" else "biu"):
        said = f"{name} has the dtype {array.dtype}, which cannot become {dtype}"
        raise ContractError("observation_dtype", said)
    if dtype.kind in "iu":
        with np.errstate(invalid="ignore"):
            changed = array != array.astype(dtype)
        if changed.any():
            place = _first(changed)
            said = f"{name} is {array[place]}{_at(place)}, which {dtype} cannot hold"
            raise ContractError("observation_range", said)
    return array


def in_range(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rewards or observed numbers a run can learn from; NaN is none."""
    result: NDArray[np.bool_] = np.abs(numbers) <= LARGEST_NUMBER
    return result


def range_error(given: Any, name: str, quantity: str = "observation") -> ContractError:
    """The error for a leaf of an observation, or another quantity, that is not `in_range`."""
    numbers = np.asarray(given, np.float64)
    place = _first(~in_range(numbers))
    said = f"{name} is {numbers[place]:g}{_at(place)}, {_RANGE}"
    return ContractError(f"{quantity}_range", said)


def kind(value: Any) -> str:
    """A short text of a value and its type."""
    if isinstance(value, tuple | list):
        return f"{kind_of(value)} of {len(value)}"
    return f"{value!r:.60} ({type(value).__name__})"


def _only(given: Any, reason: str, expected: str, name: str = "reward") -> Any:
    """The only number in a scalar or in an array of one."""
    array = np.asarray(given)
    if array.size != 1 or array.dtype.kind not in "biuf":
        said = f"{name} is {kind(given)}, expected {expected}"
        if array.size > 1 and array.dtype.kind in "biuf":
            said = f"{name} has the shape {array.shape}, expected {expected}"
        raise ContractError(reason, said)
    return array.reshape(-1)[0]


def _first(wrong: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(wrong)[0])


def _at(place: tuple[int, ...]) -> str:
    return f" at {list(place)}" if place else ""
