"""A run's files stay where the command started, whatever an environment does."""

from __future__ import annotations

from pathlib import Path

import pytest

from aclearn.runs import load_newest
from tests.support.system import CARTPOLE, System

_WANDERING = """
import os

import gymnasium


class Wandering(gymnasium.Wrapper):
    '''Changes the working directory whenever it is called.'''

    def __init__(self, to):
        os.chdir(to)
        self.to = to
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action):
        os.chdir(self.to)
        return self.env.step(action)
"""


@pytest.fixture
def elsewhere(system: System) -> Path:
    """The environment's folder; commands are called in another one, beside its module."""
    here, elsewhere = system.folder / "here", system.folder / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    (here / "wandering.py").write_text(_WANDERING)
    system.cwd = here
    return elsewhere


def test_an_environment_that_changes_the_working_directory_moves_no_file(
    system: System, elsewhere: Path
) -> None:
    here = system.folder / "here"
    config = system.config(
        CARTPOLE,
        run={"dir": "runs"},
        env={"id": "wandering:Wandering", "kwargs": {"to": str(elsewhere)}},
        actors={"processes": 1},
        # with a chain the command itself makes an environment
        compressor={"chain": ["onnx"]},
    )
    run = system.train(config)
    run.folder = here / "runs" / "r"
    run.wait_until_learning(beyond=200)
    run.wait_for_new("trainer-0", run.kill_role("trainer-0"))
    run.wait_for(lambda: run.last()["generation"] == 1, "the next trainer goes on")
    summary = run.finish()
    newest = load_newest(run.folder / "checkpoints")
    assert newest is not None
    assert newest.state["account"]["learned_steps"] == summary["learned_steps"]

    # a moved run continues in its new place
    (here / "runs").rename(here / "moved")
    resumed = system.train(here / "moved" / "r" / "config.yaml", "--resume")
    resumed.folder = here / "moved" / "r"
    resumed.wait_until_learning(beyond=summary["learned_steps"] + 100)
    resumed.finish()

    exported = system.command("export", "moved/r", "--to", "policy.onnx")
    assert exported.wait() == 0, exported.output
    assert sorted(path.name for path in here.iterdir()) == ["moved", "policy.onnx", "wandering.py"]
    assert list(elsewhere.iterdir()) == []
