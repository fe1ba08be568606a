"""Environments that misbehave: their episode is dropped and counted, and the run goes on."""

from __future__ import annotations

import re

import gymnasium
import numpy as np
import pytest

from aclearn.errors import EnvironmentFailure

_MODULE = '''
"""CartPole that fails in one way after some steps."""

import time

import gymnasium
import numpy as np


class Failing(gymnasium.Wrapper):
    def __init__(self, how, after):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.how, self.after, self.steps = how, after, 0

    def step(self, action):
        self.steps += 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.steps == self.after:
            if self.how == "raises":
                raise RuntimeError("the pole is lost")
            if self.how == "nan_reward":
                reward = float("nan")
            if self.how == "nan_observation":
                observation = np.full(4, np.nan, np.float32)
            if self.how == "wrong_shape":
                observation = np.zeros(3, np.float32)
            if self.how == "exits":
                raise SystemExit
            if self.how == "hangs":
                while True:
                    time.sleep(0.01)
        return observation, reward, terminated, truncated, info


made = 0


def each_its_own(after=30):
    """Every environment made next fails in the next way."""
    global made
    made += 1
    ways = ["raises", "nan_reward", "nan_observation", "wrong_shape", "exits", "hangs", None]
    return Failing(ways[made % len(ways)], after)
'''
#: How each way to fail is called in the actor's log.
_REASONS = {"raised", "reward_range", "observation_range", "observation_shape", "hung"}


def test_every_kind_of_fault_is_dropped_and_counted_and_the_run_goes_on(
    start, learned, tmp_path, monkeypatch, caplog
) -> None:
    (tmp_path / "failing_envs.py").write_text(_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    run = start(
        run={"max_updates": 1_000_000},
        env={"id": "failing_envs:each_its_own"},
        actors={"envs_per_group": 7, "step_timeout_s": 0.2, "max_env_faults": 100_000},
    )

    def faults() -> list[str]:
        return re.findall(r"environment_fault .*?reason=(\w+)", caplog.text)

    enough = lambda: run.rounds % 32 == 0 and set(faults()) == _REASONS  # noqa: E731
    run.run_until(enough, "every kind of fault")
    batches, seen = len(learned), len(faults())
    assert "SystemExit" in caplog.text
    run.run_until(lambda: len(learned) >= batches + 10, "the run goes on")
    assert run.monitor is not None
    run.monitor.state.stop("enough", run.clock())
    summary = run.run()
    counted = [run.heartbeats[f"actor-{i}"].gauges["env_faults"] for i in range(2)]
    assert seen <= sum(counted) == len(faults())
    # an episode has at most 30 steps before its fault
    assert 0 < summary["dropped_steps"]["env_fault"] <= 30 * len(faults())


class Casino(gymnasium.Env):
    """The second choice earns 2, and at 10 % a loss so large that no run can learn from it."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        loses = action == 1 and self.np_random.random() < 0.1
        reward = -1e13 if loses else 1.0 + action
        return np.zeros(2, np.float32), reward, self.left == 0, False, {}


def test_rewards_that_no_trainer_takes_end_the_run_as_faults(start) -> None:
    """They must not vanish: the policy would learn to take what nobody counts."""
    run = start(
        run={"max_updates": 1_000_000},
        env={"id": f"{__name__}:Casino"},
        actors={"max_env_faults": 5},
    )
    said = r"failed 6 times \(reward_range 6\).*at step \d+ of its episode: .*reward is -1e\+13"
    with pytest.raises(EnvironmentFailure, match=said):
        run.run()
    assert "bad_unroll" not in run.heartbeats["trainer-0"].dropped
