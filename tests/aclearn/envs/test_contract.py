"""The table of forms: what an environment may give, in a run and in `check_env`, and what it gets.

Each row is one form of one thing. A form that is taken means the value beside it; all others are
faults with a reason that a log and a counter name.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from aclearn.distributions import distribution_of
from aclearn.errors import EnvironmentFailure
from aclearn.types import OBSERVATION

_NUMBERS = spaces.Box(-9.0, 9.0, (2,), np.float32)
_IMAGE = spaces.Box(0, 255, (2, 3), np.uint8)
_DEEP = spaces.Dict({"n": spaces.Discrete(3, start=1), "t": spaces.Tuple([spaces.Discrete(2)] * 2)})


class Given(gymnasium.Env[Any, Any]):
    """Gives what a test says; `given` is read at every call."""

    given: dict[str, Any] = {}  # noqa: RUF012 (set by each test)
    got: list[Any] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.observation_space = self.given.get("space", _NUMBERS)
        self.action_space = self.given.get("actions", spaces.Discrete(2))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.given.get("reset", (self.given.get("first", self._plain()), {}))

    def step(self, action: Any) -> Any:
        self.got.append(action)
        parts = {"seen": self._plain(), "reward": 1.0, "terminated": False, "truncated": False}
        whole = tuple(self.given.get(name, value) for name, value in (parts | {"info": {}}).items())
        return self.given.get("step", whole)

    def _plain(self) -> Any:
        space = self.observation_space
        return space.sample() if space is not _NUMBERS else np.zeros(2, np.float32)


@pytest.fixture
def group_of(make_group):
    def make(**given: Any):
        Given.given, Given.got = given, []
        group = make_group(f"{__name__}:Given", num_envs=1, max_faults=9)
        group.reset()
        return group

    return make


def _step(group) -> Any:
    group.send(np.zeros((1, *group.spec.action.shape), group.spec.action.dtype))
    return group.recv()


def _fault(group, caplog) -> str:
    """Reason and detail of the only fault of a step."""
    caplog.clear()
    step = _step(group)
    assert step.faulted.tolist() == [True] and step.rewards.tolist() == [0.0]
    [(reason, count)] = group.faults.items()
    assert count == 1 and f"step=1 reason={reason}" in caplog.text
    return f"{reason}: {re.findall('detail=.(.*).', caplog.text)[0]}"


@pytest.mark.parametrize(
    ("given", "value"),
    [
        *((form(2), 2.0) for form in (int, float, np.float32, np.int8, np.float64, np.uint16)),
        (True, 1.0),
        (Fraction(1, 2), 0.5),
        (np.array(2.5), 2.5),
        (np.array([2.5], np.float32), 2.5),
        (np.array([[2]]), 2.0),
        ([2.5], 2.5),
        (torch.tensor(2.5), 2.5),
        (1e12, 1e12),
        (-1e12, -1e12),
    ],
    ids=repr,
)
def test_a_reward_may_be_any_number_or_an_array_of_one(group_of, given, value) -> None:
    assert _step(group_of(reward=given)).rewards.tolist() == [np.float32(value)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, r"reward: reward is None \(NoneType\), expected a number"),
        ("2", "reward: reward is '2'"),
        (2j, "reward: reward is 2j"),
        (np.zeros(2), r"reward: reward has the shape \(2,\), expected a number"),
        ([], "reward: reward is a list of 0"),
        (float("nan"), r"reward_range: reward is nan, expected a number from -1e\+12 to 1e\+12"),
        (-np.inf, "reward_range: reward is -inf"),
        (1.001e12, r"reward_range: reward is 1.001e\+12"),
        (np.array([-1e300]), r"reward_range: reward is -1e\+300"),
    ],
    ids=repr,
)
def test_another_reward_is_a_fault(group_of, caplog, given, said) -> None:
    assert re.match(said, _fault(group_of(reward=given), caplog))


@pytest.mark.parametrize("form", [bool, int, float, np.bool_, np.int8, np.array, lambda v: [v]])
@pytest.mark.parametrize("name", ["terminated", "truncated"])
def test_a_flag_may_be_any_true_or_false(group_of, name, form) -> None:
    for value in (True, False):
        step = _step(group_of(**{name: form(value)}))
        assert getattr(step, name).tolist() == [value] and not step.faulted.any()


@pytest.mark.parametrize("given", [None, 2, -1.0, "no", np.zeros(2, bool), float("nan")], ids=repr)
def test_another_flag_is_a_fault(group_of, caplog, given) -> None:
    said = _fault(group_of(truncated=given), caplog)
    assert said.startswith("flag: truncated ") and said.endswith("expected True or False")


@pytest.mark.parametrize(
    ("space", "given", "row"),
    [
        (_NUMBERS, np.array([0.1, 2.0]), [np.float32(0.1), 2.0]),
        (_NUMBERS, np.array([1, -2]), [1.0, -2.0]),
        (_NUMBERS, np.array([True, False]), [1.0, 0.0]),
        (_NUMBERS, [0.5, 1], [0.5, 1.0]),
        (_NUMBERS, np.array([1e12, 99.0]), [np.float32(1e12), 99.0]),  # bounds are advice
        (_NUMBERS, torch.tensor([0.5, 1.0]), [0.5, 1.0]),
        (spaces.Box(-9, 9, (2,), np.int64), np.array([0.5, 1.0]), [0.5, 1.0]),
        (_IMAGE, np.full((2, 3), 255, np.uint16), [255] * 6),
        (_IMAGE, np.full((2, 3), 7, np.int64), [7] * 6),
        (_IMAGE, [[1, 2, 3], [4, 5, 6]], [1, 2, 3, 4, 5, 6]),
        (_IMAGE, np.ones((2, 3), np.bool_), [1] * 6),
        (spaces.Discrete(3), np.uint8(2), [0, 0, 1]),
        (spaces.Discrete(3), True, [0, 1, 0]),
        (spaces.Discrete(3), np.array(1), [0, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [0, 1, 0, 0, 1]),
        (spaces.MultiBinary(2), [True, False], [1, 0]),
        (_DEEP, {"n": 3, "t": (0, 1)}, [0, 0, 1]),
        (_DEEP, {"n": 3, "t": [0, 1]}, [0, 0, 1]),
    ],
    ids=repr,
)
def test_an_observation_may_have_any_form_that_means_the_same(group_of, space, given, row) -> None:
    step = _step(group_of(space=space, first=given, seen=given))
    assert not step.faulted.any()
    assert next(iter(step.observations.values()))[0].flatten().tolist() == row


@pytest.mark.parametrize(
    ("space", "given", "said"),
    [
        (_NUMBERS, np.zeros(3), r"observation_shape: observation has the shape \(3,\), its space"),
        (_NUMBERS, np.zeros((1, 2)), "observation_shape: "),
        (_NUMBERS, [[1.0], [1.0, 2.0]], "observation_shape: observation is no array"),
        (_NUMBERS, None, "observation_shape: "),
        (_NUMBERS, ["a", "b"], "observation_dtype: observation has the dtype <U1"),
        (_NUMBERS, np.zeros(2, complex), "observation_dtype: "),
        (_NUMBERS, np.array([0.0, np.nan]), r"observation_range: observation is nan at \[1\]"),
        (_NUMBERS, np.array([1e300, 0.0]), r"observation_range: observation is 1e\+300 at \[0\]"),
        (_NUMBERS, np.array([0.0, -2e12], np.float32), r"observation_range: .* is -2e\+12 at"),
        (_NUMBERS, np.array([10**13, 0]), r"observation_range: observation is 1e\+13 at \[0\]"),
        (
            _IMAGE,
            np.full((2, 3), 300, np.uint16),
            r"observation_range: observation is 300 at \[0, 0\], which uint8 cannot hold",
        ),
        (_IMAGE, np.full((2, 3), -1), "observation_range: observation is -1 at"),
        (_IMAGE, np.ones((2, 3), np.float32), "observation_dtype: .* float32, which cannot become"),
        (spaces.Discrete(3), 3, "observation_range: observation is 3, which its space does not"),
        (spaces.Discrete(3), 2**64 - 1, "observation_range: "),
        (spaces.Discrete(3), 1.0, "observation_dtype: "),
        (spaces.MultiBinary(2), [2, 0], "observation_range: "),
        (_DEEP, {"n": 3}, "observation_keys: observation is a dict with the keys n; expected n, t"),
        (_DEEP, {"n": 3, "t": (0,)}, "observation_keys: t is a tuple with the keys 0; expected"),
        (_DEEP, {"n": 3, "t": {0: 0, 1: 1}}, "observation_keys: t is a dict"),
        (_DEEP, [1, (0, 1)], "observation_keys: observation is a list"),
    ],
    ids=repr,
)
def test_an_observation_that_a_cast_would_change_is_a_fault(
    group_of, caplog, space, given, said
) -> None:
    found = _fault(group_of(space=space, seen=given), caplog)
    assert re.match(said, found), found


_SEEN = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            (_SEEN, 1.0, False, {}),
            "step_result: step returned a tuple of 4: this is the API of gym",
        ),
        (_SEEN, "step_result: .*expected a step that returns .observation, reward, terminated, tr"),
        (None, r"step_result: step returned None \(NoneType\): expected"),
        ((_SEEN, 1.0, False, False, None), r"info: info is None \(NoneType\), expected a dict"),
    ],
    ids=("four values", "an array", "nothing", "no info"),
)
def test_another_result_of_a_step_is_a_fault(group_of, caplog, given, said) -> None:
    found = _fault(group_of(step=given), caplog)
    assert re.match(said, found), found


class Seedless(Given):
    def reset(self) -> Any:  # type: ignore[override]
        return _SEEN


@pytest.mark.parametrize(
    ("env", "given", "said"),
    [
        (
            "Given",
            _SEEN,
            "reset returned array.* this is the API of gym .*reset.self, .*seed=",
        ),
        ("Given", [0.0, 1.0], "info is 1.0 .float., expected a dict"),
        ("Given", (_SEEN, None), "info is None"),
        ("Seedless", None, r"reset takes no seed: .* gym before 0\.26; derive the class"),
    ],
    ids=("an array", "a list of two numbers", "no info", "no seed"),
)
def test_another_result_or_form_of_a_reset_is_a_fault(make_group, env, given, said) -> None:
    Given.given = {"reset": given}
    group = make_group(f"{__name__}:{env}", num_envs=1, max_faults=0)
    with pytest.raises(EnvironmentFailure, match=said):
        group.reset()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3),
        spaces.Discrete(3, start=-1, dtype=np.int32),
        spaces.MultiDiscrete([[2, 3]], dtype=np.int16),
        spaces.MultiBinary((2, 2)),
        spaces.Box(-1.0, 1.0, (), np.float32),
        spaces.Box(np.float64(0.1), np.float64(0.3), (2, 1), np.float64),
        spaces.Box(-1.0, 1.0, (2,), np.float16),
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.Box(0, 1)])}),
    ],
    ids=repr,
)
def test_an_environment_gets_actions_as_its_space_samples_them(group_of, space) -> None:
    group = group_of(actions=space)
    distribution, rng = distribution_of(group.spec.action), np.random.default_rng(0)
    parameters = np.full((1, distribution.parameter_count), 0.5, np.float32)
    for _ in range(20):
        group.send(distribution.sample(parameters, rng)[0])
        group.recv()
    assert not group.faults and len(Given.got) == 20
    for action in Given.got:
        assert space.contains(action), action
        assert _form(action) == _form(space.sample())


def _form(action: Any) -> Any:
    """Types, dtypes and shapes, all the way down."""
    if isinstance(action, dict):
        return {key: _form(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return [_form(part) for part in action]
    return type(action), action.dtype, action.shape


def test_an_environment_may_replace_its_step(group_of) -> None:
    """Some do so in reset, to choose among several tasks."""
    group = group_of()
    [env] = group._group.envs
    plain = env.step
    env.step = lambda action: (np.ones(2, np.float32), *plain(action)[1:])
    assert _step(group).observations[OBSERVATION].tolist() == [[1.0, 1.0]]
