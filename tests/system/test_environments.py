"""Failing environments: their episode is dropped and counted, and the run continues."""

from __future__ import annotations

import re

import pytest

from tests.support.system import CARTPOLE, System

_MODULE = '''
"""CartPole that fails in one way after some steps."""

import ctypes
import signal
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
            if self.how == "hangs":
                while True:
                    time.sleep(0.01)
            if self.how == "hangs_in_c":
                hang_in_c()
        return observation, reward, terminated, truncated, info


def hang_in_c():
    # a call that comes back for no signal and keeps the interpreter's lock
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    ctypes.PyDLL(None).sleep(10_000)


made = 0


def each_its_own(after=30):
    """Every maker's next environment fails in the next way."""
    global made
    made += 1
    ways = ["raises", "nan_reward", "nan_observation", "wrong_shape", "hangs", None]
    return Failing(ways[made % len(ways)], after)


class Slow(gymnasium.Wrapper):
    def reset(self, **options):
        time.sleep(0.4)
        return self.env.reset(**options)


def slow_to_begin():
    return Slow(gymnasium.make("CartPole-v1"))


def hangs_once(mark, after=40):
    """The first that takes so many steps hangs; a file tells the others."""
    env = Failing("hangs_in_c", after)
    step = env.step

    def marked(action):
        if env.steps + 1 == after:
            try:
                open(mark, "x").close()
            except FileExistsError:
                env.how = None
        return step(action)

    env.step = marked
    return env
'''

#: The reason in the actor's log for each way to fail.
_REASONS = {
    "raised",
    "reward_not_finite",
    "observation_not_finite",
    "observation_shape",
    "hung",
}


@pytest.fixture
def module(system: System) -> None:
    """`failing_envs` on the PYTHONPATH of every role."""
    (system.folder / "failing_envs.py").write_text(_MODULE)


@pytest.mark.usefixtures("module")
def test_every_kind_of_fault_is_dropped_and_counted_and_the_run_goes_on(system: System) -> None:
    config = system.config(
        CARTPOLE,
        env={"id": "failing_envs:each_its_own"},
        actors={"envs_per_group": 6, "step_timeout_s": 2.0, "max_env_faults": 100_000},
    )
    run = system.train(config)
    run.wait_for(
        lambda: (
            set(re.findall(r"environment_fault .*?reason=(\w+)", run.log("actor-0"))) >= _REASONS
        ),
        "every kind of fault",
    )
    before = run.last()
    run.wait_for(
        lambda: run.last()["learned_steps"] > before["learned_steps"] + 300, "the run goes on"
    )
    # a mean over two actors, of heartbeats that come slightly later than the log
    reported = run.wait_for(
        lambda: (n := 2 * run.last().get("actor_env_faults", 0.0)) >= len(_REASONS) and n,
        "all kinds are counted",
    )
    summary = run.finish()
    # an episode has at most 30 steps before its fault, and each fault costs one at least
    faults = sum(run.log(name).count("event=environment_fault") for name in ("actor-0", "actor-1"))
    assert 0 < summary["dropped_steps"]["env_fault"] <= 30 * faults
    assert reported <= faults


@pytest.mark.usefixtures("module")
def test_an_environment_that_hangs_in_native_code_costs_its_actor_alone(system: System) -> None:
    config = system.config(
        CARTPOLE,
        env={
            "id": "failing_envs:hangs_once",
            "kwargs": {"mark": str(system.folder / "hung")},
        },
        actors={"step_timeout_s": 2.0},
        monitor={"silent_after_s": 5.0, "heartbeat_every_s": 0.1},
    )
    run = system.train(config)
    run.wait_for((system.folder / "hung").exists, "an environment hangs")
    pids = run.pids()
    run.wait_for(lambda: "silent" in run.output, "the silence is noticed", within_s=20.0)
    hung = "actor-0" if "actor-0 killed" in run.output else "actor-1"
    assert f"{hung} killed: " in run.output
    new = run.wait_for_new(hung, pids[hung], within_s=10.0)
    assert run.pids() == pids | {hung: new}
    before = run.last()["learned_steps"]
    run.wait_until_learning(beyond=before + 300)
    run.finish()


@pytest.mark.usefixtures("module")
def test_an_actor_is_heard_of_while_its_environments_are_reset_one_by_one(system: System) -> None:
    config = system.config(CARTPOLE, env={"id": "failing_envs:slow_to_begin"})
    run = system.train(config)
    # resets take 1.6 s, while a heartbeat is due every tenth of a second
    run.wait_until_learning(beyond=20)
    assert "died" not in run.output, run.diagnosis()
    run.finish()
