"""What `check_env` finds in environments that break the contract."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from aclearn.envs.env_check import check_env


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
    report = check_env(Good, steps=105)
    assert (report.mend, report.advice) == ([], [])
    # 105 steps of ten each: ten have ended
    assert "10 episodes terminated, 0 were truncated, mean length 10" in report.fine
    assert "one seed gives one episode" in report.fine


def made(**methods) -> type[Good]:
    return type("Bad", (Good,), methods)


class ByClass(Good):
    drawn = 0

    def seen(self):
        ByClass.drawn += 1  # state of the class, not of the instance
        return np.full(2, np.sin(ByClass.drawn), np.float32)


def _random_steps(self, action):
    self.left -= 1
    shown = np.random.default_rng().uniform(-1.0, 1.0, 2).astype(np.float32)
    return shown, 1.0, self.left == 0, False, {}


def _raises(self, action):
    raise KeyError("nothing")


def _hangs(self, action):
    while True:
        pass


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (made(seen=lambda self: np.zeros(2)), "reset: the observation has dtype float64, its"),
        (made(seen=lambda self: np.zeros(3, np.float32)), r"reset: the .* has shape \(3,\)"),
        (made(seen=lambda self: np.full(2, 1.5, np.float32)), "has 1.5 at 0, its space says -1 to"),
        (made(seen=lambda self: np.full(2, np.nan, np.float32)), "NaN or infinite"),
        (made(reward=None), "step: the reward is None"),
        (made(reward=float("inf")), "step: the reward is inf; return a finite"),
        (made(step=lambda self, a: (self.seen(), 0.0, 0, False, {})), "terminated is 0 .int.; ret"),
        (made(step=lambda self, a: (self.seen(), 0.0, False, {})), "info.*got a tuple of 4"),
        (made(reset=lambda self, seed=None, options=None: np.zeros(2)), r"reset: expected \(obse"),
        (made(step=_raises), r"step: raises KeyError: .nothing. \[line \d+ of .*test_env_check.py"),
        (made(step=_hangs), "step: raises StepHungError: no answer within 0.3 s"),
        (ByClass, "reset: one seed gave two different observations"),
        (made(step=_random_steps), "step: the same seed and actions differ after 1 steps"),
    ],
)
def test_what_breaks_the_contract_is_named_with_its_mending(env: type[Good], said: str) -> None:
    [found] = check_env(env, steps=50, step_timeout_s=0.3).mend
    assert re.search(said, found), found


def test_large_rewards_and_missing_ends_are_pointed_at() -> None:
    endless = made(step=lambda self, a: (self.seen(), 500.0, False, False, {}))
    report = check_env(endless, steps=30)
    assert report.mend == []
    first, second = report.advice
    assert "no episode ended in 30 steps" in first and "rewards reach 500; set loss" in second
