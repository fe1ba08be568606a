"""Modules beside a configuration, in every command and process, also from another folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import aclearn
from tests.support.waiting import run_python

_NETWORK = """
from torch import nn


class Network(nn.Module):
    def __init__(self, observation, parameters):
        super().__init__()
        (leaf,) = observation.values()
        self.policy, self.value = nn.Linear(leaf.shape[0], parameters), nn.Linear(leaf.shape[0], 1)

    def forward(self, x):
        return self.policy(x), self.value(x)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as `aclearn new` writes it, with a network; the current folder is its parent."""
    monkeypatch.chdir(tmp_path)
    aclearn("new", "myproj")
    (tmp_path / "myproj" / "my_network.py").write_text(_NETWORK)
    return tmp_path / "myproj"


def test_a_project_is_trained_from_its_parent_and_read_from_elsewhere(
    project: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    forget: Callable[[], None],
) -> None:
    (project / "services").mkdir()
    (project / "services" / "prices.py").touch()
    (project / "compress.py").touch()
    (project / "correctors").mkdir()  # empty: no module
    network = ("policy.architecture=my_network:Network", "policy.hidden=null")
    short = ("run.max_updates=2", "actors.processes=1", "supervisor.max_restarts=0")
    done = run_python(
        *("-P", "-m", "aclearn", "train", "myproj/config.yaml", *network, *short),
        cwd=project.parent,
    )
    said = done.stdout + done.stderr
    assert "run myproj-1 (seed 1) ended: max_updates" in said
    # modules that ours hide are named
    (line,) = [line for line in said.splitlines() if "rename yours" in line]
    assert f"{project / 'services'}" in line and f"{project / 'compress.py'}" in line
    assert "correctors" not in line

    elsewhere, run = tmp_path_factory.mktemp("elsewhere"), project.parent / "runs" / "myproj-1"
    monkeypatch.chdir(elsewhere)
    more = ("run.deterministic=true", "run.max_updates=4")
    assert "ended: max_updates" in aclearn("train", run / "config.yaml", "--resume", *more)
    forget()
    assert "1 episodes" in aclearn("evaluate", run, "--episodes", "1")
    forget()
    assert "one seed gives" in aclearn("check-env", "my_env:make", f"run.pythonpath=[{project}]")
    # a run that imports nothing of the project is not concerned
    (project / "correctors" / "a.py").touch()
    said = aclearn("train", "cartpole", "run.deterministic=true", *short)
    assert "rename yours" not in said
