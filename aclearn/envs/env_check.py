"""The contract of an environment, tried on one: what to mend before it is trained on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from gymnasium import spaces

from aclearn.envs.deadline import ENVIRONMENT_FAULTS, StepDeadline
from aclearn.errors import words_of
from aclearn.extensions import users_line

_SEED = 7
#: Steps with the same seed and actions that are compared.
_COMPARED = 50
#: Reward beyond which its size matters for learning.
_LARGE_REWARD = 100.0


class _Ended(Exception):
    """A fault that ends the check; it is in the report."""


@dataclass
class EnvReport:
    """The result of a check.

    Attributes:
        fine: what keeps the contract, one sentence each.
        advice: what is allowed and may be meant otherwise.
        mend: what breaks the contract, and how to mend it.
    """

    fine: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    mend: list[str] = field(default_factory=list)


def check_env(
    make: Callable[[], Any],
    *,
    steps: int = 1000,
    seconds: float = 5.0,
    step_timeout_s: float = 30.0,
) -> EnvReport:
    """Check a `gymnasium.Env` with random actions: spaces, dtypes, ends, seeds, speed.

    Args:
        make: makes one.
        steps: most steps with random actions.
        seconds: most seconds for them.
        step_timeout_s: time limit of each call of the environment.
    """
    report, deadline, made = EnvReport(), StepDeadline(step_timeout_s), []
    try:
        env = _call("make", deadline, report, make)
        made.append(env)
        _play(env, report, deadline, steps, seconds)
        if not report.mend:
            other = _call("make", deadline, report, make)
            made.append(other)
            _compare_seeds(env, other, report, deadline)
    except _Ended:
        pass
    finally:
        for env in made:
            with _within("close", deadline, report, ends=False):
                env.close()
        deadline.close()
    report.mend = list(dict.fromkeys(report.mend))
    return report


@contextmanager
def _within(
    call: str, deadline: StepDeadline, report: EnvReport, *, ends: bool = True
) -> Iterator[None]:
    """A call of the environment; its fault is reported and ends the check."""
    try:
        with deadline:
            yield
    except ENVIRONMENT_FAULTS as error:
        deadline.disarm()
        report.mend.append(f"{call}: raises {words_of(error)}{users_line(error)}")
        if ends:
            raise _Ended from error


def _call(name: str, deadline: StepDeadline, report: EnvReport, function: Callable[[], Any]) -> Any:
    with _within(name, deadline, report):
        return function()


def _play(env: Any, report: EnvReport, deadline: StepDeadline, steps: int, seconds: float) -> None:
    """Reset and step with random actions; check everything that comes back."""
    env.action_space.seed(_SEED)
    terminated = truncated = taken = 0
    largest, in_env_s, lengths = 0.0, 0.0, [0]
    _reset(env, report, deadline, _SEED)
    while taken < steps and in_env_s < seconds:
        begun = time.perf_counter()
        action = env.action_space.sample()
        result = _call("step", deadline, report, partial(env.step, action))
        in_env_s += time.perf_counter() - begun
        taken += 1
        lengths[-1] += 1
        if not isinstance(result, tuple) or len(result) != 5:
            report.mend.append(
                "step: expected (observation, reward, terminated, truncated, info), got "
                f"{_kind(result)}"
            )
            raise _Ended
        observation, reward, ends, cut, info = result
        _check_observation("step", observation, env.observation_space, report)
        _check_rest(reward, ends, cut, info, report)
        if report.mend:
            raise _Ended
        largest = max(largest, abs(float(reward)))
        terminated, truncated = terminated + bool(ends), truncated + bool(cut)
        if ends or cut:
            lengths.append(0)
            _reset(env, report, deadline, None)
    report.fine.append(f"reset and step keep the spaces in {taken} steps with random actions")
    report.fine.append(f"{taken / max(in_env_s, 1e-9):,.0f} steps/s in one environment")
    if terminated + truncated == 0:
        report.advice.append(
            f"no episode ended in {taken} steps: returns are reported at ends; if none comes by "
            "itself, add a limit (gymnasium.wrappers.TimeLimit)"
        )
    else:
        mean = sum(lengths[:-1]) / len(lengths[:-1])
        report.fine.append(
            f"{terminated} episodes terminated, {truncated} were truncated, mean length {mean:.0f}"
        )
    if largest > _LARGE_REWARD:
        report.advice.append(
            f"rewards reach {largest:.3g}; set loss.normalise_returns, or clip or scale them"
        )
    elif largest == 0.0:
        report.advice.append("every reward was 0 with random actions: nothing to learn from yet")


def _reset(env: Any, report: EnvReport, deadline: StepDeadline, seed: int | None) -> Any:
    result = _call("reset", deadline, report, lambda: env.reset(seed=seed))
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        report.mend.append(f"reset: expected (observation, info dict), got {_kind(result)}")
        raise _Ended
    _check_observation("reset", result[0], env.observation_space, report)
    if report.mend:
        raise _Ended
    return result[0]


def _check_observation(call: str, observation: Any, space: Any, report: EnvReport) -> None:
    if space.contains(observation):
        return
    if not isinstance(space, spaces.Box):
        report.mend.append(f"{call}: the observation {observation!r:.100} is not in {space}")
        return
    array = np.asarray(observation)
    if array.shape != space.shape:
        found = f"shape {array.shape}, its space says {space.shape}"
    elif array.dtype != space.dtype:
        found = (
            f"dtype {array.dtype}, its space says {space.dtype}; return "
            f"np.asarray(observation, np.{space.dtype})"
        )
    elif not np.isfinite(array).all():
        found = "NaN or infinite numbers"
    elif not isinstance(observation, np.ndarray):
        found = f"the type {_kind(observation)}; return np.asarray(observation, np.{space.dtype})"
    else:
        outside = np.flatnonzero((array < space.low) | (array > space.high))
        i = int(outside[0])
        low, high = space.low.flat[i], space.high.flat[i]
        found = f"{array.flat[i]:.4g} at {i}, its space says {low:.4g} to {high:.4g}"
    report.mend.append(f"{call}: the observation has {found}")


def _check_rest(reward: Any, ends: Any, cut: Any, info: Any, report: EnvReport) -> None:
    if not isinstance(reward, Real) and np.shape(reward) != (1,):
        report.mend.append(f"step: the reward is {_kind(reward)}; return a float")
    elif not math.isfinite(float(reward)):
        report.mend.append(f"step: the reward is {float(reward)}; return a finite number")
    for name, value in (("terminated", ends), ("truncated", cut)):
        if not isinstance(value, bool | np.bool_):
            report.mend.append(f"step: {name} is {_kind(value)}; return a bool")
    if not isinstance(info, dict):
        report.mend.append(f"step: info is {_kind(info)}; return a dict")


def _compare_seeds(env: Any, other: Any, report: EnvReport, deadline: StepDeadline) -> None:
    """The same seed and actions must give the same episode, in any instance."""
    firsts = [_reset(each, report, deadline, _SEED) for each in (env, other)]
    if not _equal(*firsts):
        report.mend.append(
            "reset: one seed gave two different observations; call super().reset(seed=seed) and "
            "draw all random numbers from self.np_random"
        )
        return
    env.action_space.seed(_SEED)
    for step in range(_COMPARED):
        action = env.action_space.sample()
        results = [
            _call("step", deadline, report, partial(each.step, action)) for each in (env, other)
        ]
        if not all(_equal(a, b) for a, b in zip(results[0][:4], results[1][:4], strict=True)):
            report.mend.append(
                f"step: the same seed and actions differ after {step + 1} steps; draw all random "
                "numbers from self.np_random, and keep no state outside the instance"
            )
            return
        if results[0][2] or results[0][3]:
            break
    report.fine.append("one seed gives one episode")
    if _equal(_reset(env, report, deadline, _SEED + 1), firsts[0]):
        report.advice.append("two seeds gave the same first observation; is every start equal?")


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(np.array_equal(a, b))


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"{value!r:.60} ({type(value).__name__})"
