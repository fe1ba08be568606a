"""A role that ends during a run is restarted, whatever its status; the monitor ends a run."""

from __future__ import annotations

from tests.support.system import CARTPOLE, Run, System

_ENVIRONMENT = '''
import os
import sys
from pathlib import Path

import gymnasium


class Leaving(gymnasium.Wrapper):
    """Leaves after 30 steps: with sys.exit, and one of all environments with os._exit first."""

    def __init__(self, mark):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.mark, self.left = Path(mark), 30

    def step(self, action):
        self.left -= 1
        if self.left == 0:
            try:
                self.mark.touch(exist_ok=False)
                os._exit(0)
            except FileExistsError:
                sys.exit()
        return self.env.step(action)
'''


def test_an_actor_whose_environment_exits_with_0_is_started_again(system: System) -> None:
    (system.folder / "leaving_env.py").write_text(_ENVIRONMENT)
    mark = system.folder / "left"
    config = system.config(
        CARTPOLE,
        env={"id": "leaving_env:Leaving", "kwargs": {"mark": str(mark)}},
        actors={"processes": 1, "max_env_faults": 100_000},
    )
    run = system.train(config)
    run.wait_for(mark.exists, "an environment ends its process")
    run.wait_for(
        lambda: "actor-0 died: exit status 0; restart 1 in " in run.output, "the death is told"
    )
    run.wait_until_learning(beyond=run.last()["learned_steps"] + 500)
    # environments that exit by sys.exit are made again in the same process
    assert run.log("actor-0").count("reason=raised") > 10
    assert "SystemExit" in run.log("actor-0")
    assert run.output.count("died") == 1
    assert run.finish()["dropped_steps"]["env_fault"] > 0


def test_lockstep_and_evaluation_outlive_an_environment_that_exits(system: System) -> None:
    (system.folder / "leaving_env.py").write_text(_ENVIRONMENT)
    mark = system.folder / "left"
    mark.touch()
    config = system.config(
        CARTPOLE,
        run={"deterministic": True, "max_updates": 20},
        env={"id": "leaving_env:Leaving", "kwargs": {"mark": str(mark)}},
        actors={"max_env_faults": 200},
    )
    run: Run = system.train(config)
    assert run.wait() == 0, run.diagnosis()
    assert run.check_account()["dropped_steps"]["env_fault"] > 0
    # an episode of an untrained policy has about 20 steps
    played = system.command("evaluate", run.folder, "--episodes", "20")
    assert played.wait() == 0, played.output
    assert "20 episodes, return" in played.output
