"""What `check_env` finds in environments that break the contract."""

from __future__ import annotations

import re
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from aclearn.config import EnvConfig
from aclearn.envs import env_check
from aclearn.envs.env_check import check_env
from aclearn.errors import EnvironmentFailure
from tests.support import space_envs

_PLAIN, _MASKED = EnvConfig(id="Maze"), EnvConfig(id="Maze", action_mask="info")


class Good(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)
    reward = 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return self.seen(), {}

    def step(self, action):
        self.left -= 1
        return self.seen(), self.reward, self.left == 0, False, {}

    def seen(self):
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)


def test_an_environment_that_keeps_the_contract_has_nothing_to_mend() -> None:
    report = check_env(Good, _PLAIN, steps=105)
    assert (report.mend, report.advice) == ([], [])
    # 105 steps of ten each: ten have ended
    assert "10 episodes terminated, 0 were truncated, mean length 10" in report.fine
    assert "one seed gives one episode" in report.fine


def test_resets_count_into_the_time_of_the_check_and_not_into_the_speed(monkeypatch) -> None:
    now = [0.0]

    class Slow(Good):
        """A reset takes 1 s, and each of two steps 0.25 s."""

        def reset(self, **given):
            now[0] += 1.0
            shown, info = super().reset(**given)
            self.left = 2
            return shown, info

        def step(self, action):
            now[0] += 0.25
            return super().step(action)

    monkeypatch.setattr(env_check, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    report = check_env(Slow, _PLAIN, steps=1000, seconds=5.0)
    # an episode with the reset after it takes 1.5 s: three of them, 0.25 s, and 0.25 s with a reset
    assert "reset and step keep the contract in 8 steps with random actions" in report.fine
    assert "4 steps/s in one environment" in report.fine


def made(**methods) -> type[Good]:
    return type("Bad", (Good,), methods)


class ByClass(Good):
    drawn = 0

    def seen(self):
        ByClass.drawn += 1  # state of the class, not of the instance
        return np.full(2, np.sin(ByClass.drawn), np.float32)


def seeing(observation, **methods) -> type[Good]:
    return made(seen=lambda self: observation, **methods)


def stepping(*result, **methods) -> type[Good]:
    """Gives this result, with the observation in place of its first part."""
    return made(step=lambda self, action: (self.seen(), *result), **methods)


def resetting(change) -> type[Good]:
    return made(reset=lambda self, seed=None, options=None: change(Good.reset(self)))


def _random_steps(self, action):
    self.left -= 1
    shown = np.random.default_rng().uniform(-1.0, 1.0, 2).astype(np.float32)
    return shown, 1.0, self.left == 0, False, {}


def _raises(self, *action):
    raise KeyError("nothing")


def _hangs(self, action):
    while True:
        pass


_WRONG = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (2,)), "b": spaces.Discrete(3)})


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (seeing(np.zeros(3, np.float32)), [r"reset: .* the shape \(3,\)", "step: "]),
        (seeing(np.full(2, np.nan, np.float32)), ["reset: .* nan at", "step: "]),
        (made(reward=1e13), ["step: reward is 1e\\+13, expected a number from"]),
        (made(reward=None), ["step: reward is None .NoneType., expected a number"]),
        (stepping(0.0, None, False, {}), ["step: terminated is None .NoneType., expected True or"]),
        (
            stepping([1, 2], False, {}),
            ["step returned a tuple of 4: this is the API of gym before 0.26", "step: reward has"],
        ),
        (made(step=lambda self, a: 7), ["step returned 7 .int.: expected a step that returns"]),
        (stepping(0.0, False, False, None), ["step: info is None .NoneType., expected a dict"]),
        (resetting(lambda given: given[0]), ["reset returned array.*: this is the API of gym bef"]),
        (made(reset=lambda self: Good.reset(self)[0]), ["reset takes no seed: this is the API of"]),
        (
            seeing({"a": np.zeros(3), "b": 3}, observation_space=_WRONG, reward=""),
            [
                r"reset: a has .*\(3,\)",
                "reset: b is 3",
                "step: reward",
                "step: a has",
                "step: b is",
            ],
        ),
        (
            seeing({"a": np.zeros(3)}, observation_space=_WRONG),
            ["reset: observation is a dict with the keys a; expected a, b", "step: "],
        ),
        (made(step=_raises), [r"step: raises KeyError: .nothing. \[line \d+ of .*/test_env_check"]),
        (made(step=_hangs), ["step: raises StepHungError: no answer within 0.3 s"]),
    ],
)
def test_what_a_run_counts_as_faults_is_named_all_of_it(env: type[Good], said: list[str]) -> None:
    report = check_env(env, _PLAIN, steps=50, step_timeout_s=0.3)
    found = report.mend
    # one verdict: advice is only on values that are no fault, such as missing ends
    assert not re.search("a run|API|reach", " ".join(report.advice)), report.advice
    assert len(found) == len(said), found
    for sentence, expected in zip(found, said, strict=True):
        assert re.match(expected, sentence), found


_PICTURE = spaces.Box(0.0, 1.0, (84, 84, 3), np.float32)
_LIST = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1.0, 1.0, (1,), np.float32)])


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (
            made(seen=lambda self: Good.seen(self).astype(float)),
            "reset: the observation has the dtype float64, its space says float32; a run converts",
        ),
        (
            made(seen=lambda self: Good.seen(self) + 2),
            r"reset: the observation is \S+ at \[\d\], its space says -1 to 1; a run takes it",
        ),
        (made(seen=lambda self: Good.seen(self) * 1e5), "bservations? reach .* set policy.normal"),
        (
            seeing(np.ones((84, 84, 3), np.float32), observation_space=_PICTURE),
            r"is a Box of floats with the shape \(84, 84, 3\), which .* sees as 21168 numbers",
        ),
        (made(action_space=spaces.Box(-50, 50, (2,))), "actions reach from -50 to 50, over which"),
        (made(action_space=spaces.Box(-np.inf, np.inf, (2,))), "some actions have no bounds"),
        (made(reward=np.array([1.0])), r"reward is an array of shape \(1,\); in gymnasium's API"),
        (stepping(0.5, 1, False, {}), "terminated is 1 .int"),
        (stepping(500.0, False, False, {}), "rewards reach 500; set"),
        (stepping(1.0, False, False, {}), "no episode ended in 50 steps"),
        (made(reward=0.0), "every reward was 0"),
        (ByClass, "reset: one seed gave two different observations"),
        (seeing(np.zeros(2, np.float32)), "two seeds gave the same first observation"),
        (made(step=_random_steps), "step: the same seed and actions differ after 1 steps"),
        (made(close=_raises), "close: raises KeyError"),
    ],
)
def test_what_a_run_takes_is_at_most_advice(env: type[Good], said: str) -> None:
    report = check_env(env, _PLAIN, steps=50)
    assert report.mend == []
    assert any(re.search(said, sentence) for sentence in report.advice), report.advice


def test_a_list_for_a_tuple_is_the_same_observation() -> None:
    env = made(
        observation_space=_LIST,
        seen=lambda self: [int(self.np_random.integers(3)), np.float32(self.np_random.random(1))],
    )
    report = check_env(env, _PLAIN, steps=50)
    assert "one seed gives one episode" in report.fine and not report.mend


def test_masks_are_checked_and_allowed_actions_are_taken() -> None:
    report = check_env(space_envs.Gates, _MASKED, steps=50)
    assert (report.mend, report.advice) == ([], [])
    [found] = check_env(Good, _MASKED, steps=50).mend[:1]
    assert found == "reset: its action mask: missing; only a terminal step needs none"


class Late(space_envs.Gates):
    """`Gates` whose observation has its mask but at the end, and not at step `forgets`."""

    observation_space = spaces.Dict({"gate": spaces.Discrete(6), "open": spaces.MultiBinary(6)})
    forgets = -1

    def _next(self):
        super()._next()
        mask = {} if self.steps in (8, self.forgets) else {"open": self.open}
        return {"gate": self.wanted, **mask}

    def info(self):
        return {}


def test_a_mask_that_an_observation_lacks_is_a_fault_unless_the_episode_has_ended() -> None:
    config = EnvConfig(id="Gates", action_mask="observation.open")
    assert check_env(Late, config, steps=50).mend == []
    late = type("Forgets", (Late,), {"forgets": 3, "reward": lambda self, action: 0.0})
    report = check_env(late, config, steps=50)
    assert report.mend == ["step: its action mask: missing; only a terminal step needs none"]
    assert any("in one environment" in sentence for sentence in report.fine)  # it went on


_EVERY_FORM = [
    {"seen": lambda self: np.zeros(2)},
    {"seen": lambda self: np.zeros(3)},
    {"reward": [2.0]},
    {"reward": 1e13},
    {"observation_space": _LIST, "seen": lambda self: [1, [0.5]]},
]


class Chosen(Good):
    """`Good` with some of `_EVERY_FORM`."""

    def __new__(cls, form: int) -> Good:
        return object.__new__(type("Formed", (Good,), _EVERY_FORM[form]))


@pytest.mark.parametrize("form", range(len(_EVERY_FORM)))
def test_the_verdict_is_that_of_a_run(make_group, form: int) -> None:
    group = make_group(f"{__name__}:Chosen", num_envs=1, form=form, max_faults=0)
    try:
        fails = False
        group.reset()
        group.send(np.zeros(1, np.int32))
        group.recv()
    except EnvironmentFailure:
        fails = True
    assert bool(check_env(lambda: Chosen(form), _PLAIN, steps=5).mend) == fails
