"""A role that ends during a run is restarted, whatever its status; the monitor ends a run."""

from __future__ import annotations

import json

import pytest

from tests.support.cli import aclearn
from tests.support.metrics_lines import check_lines
from tests.support.system import CARTPOLE, System

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


def test_lockstep_and_evaluation_outlive_an_environment_that_exits(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    (system.folder / "leaving_env.py").write_text(_ENVIRONMENT)
    monkeypatch.syspath_prepend(system.folder)
    mark = system.folder / "left"
    mark.touch()
    config = system.config(
        CARTPOLE,
        run={"deterministic": True, "max_updates": 20},
        env={"id": "leaving_env:Leaving", "kwargs": {"mark": str(mark)}},
        actors={"max_env_faults": 200},
    )
    aclearn("train", config)
    folder = system.folder / "runs" / "r"
    assert json.loads((folder / "summary.json").read_text())["dropped_steps"]["env_fault"] > 0
    # an episode of an untrained policy has about 20 steps
    assert "20 episodes, return" in aclearn("evaluate", folder, "--episodes", "20")


#: Of every process; a trainer runs it as it imports what makes updates. Its sixth update fails, and
#: all later ones.
_FAILING = """
import sys

class AtImport:
    def find_spec(module, path=None, target=None):
        if module != "aclearn.learning.update":
            return
        import torch

        backward, calls = torch.Tensor.backward, iter(range(5))

        def failing(*arguments, **options):
            if next(calls, None) is None:
                raise ValueError("broken on purpose")
            return backward(*arguments, **options)

        torch.Tensor.backward = failing

sys.meta_path.insert(0, AtImport)
"""


def test_a_trainer_whose_workers_fail_three_times_in_a_row_ends_with_the_traceback(
    system: System,
) -> None:
    (system.folder / "sitecustomize.py").write_text(_FAILING)
    config = system.config(CARTPOLE, supervisor={"max_restarts": 0})
    run = system.train(config)
    assert run.wait() == 1, run.diagnosis()
    log = run.log("trainer-0")
    assert log.count("event=worker_failed") == 3
    assert "RuntimeError: 3 steps of trainer workers in a row failed" in log
    assert "ValueError: broken on purpose" in log and "Traceback" in log
    assert "trainer-0" in run.output and "in a row failed" in run.output
    check_lines(run.lines())
    last = run.last()
    assert last["updates"] == 5
    # three batches of two unrolls of five steps of four games, less the masked steps
    assert 0 < last["dropped_steps"]["worker_failed"] <= 3 * 2 * 5 * 4
