"""Modules beside a configuration, in every command and process, also from another folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.cli import aclearn
from tests.support.waiting import run_python

_SHORT = ("run.max_updates=2", "actors.processes=1", "supervisor.max_restarts=0")
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
    monkeypatch.setattr(sys, "path", list(sys.path))
    aclearn("new", "myproj")
    (tmp_path / "myproj" / "my_network.py").write_text(_NETWORK)
    yield tmp_path / "myproj"
    for name in ("my_env", "my_network"):
        sys.modules.pop(name, None)


def _run(*words: str, cwd: Path) -> str:
    done = run_python("-P", "-m", "aclearn", *words, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_project_is_trained_from_its_parent_and_read_from_elsewhere(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    parent, elsewhere = project.parent, tmp_path_factory.mktemp("elsewhere")
    network = ("policy.architecture=my_network:Network", "policy.hidden=null")
    said = _run("train", "myproj/config.yaml", *network, *_SHORT, cwd=parent)
    assert "run myproj-1 (seed 1) ended: max_updates" in said
    run = parent / "runs" / "myproj-1"
    said = _run("train", str(run / "config.yaml"), "--resume", "run.max_updates=4", cwd=elsewhere)
    assert "ended: max_updates" in said
    assert "1 episodes" in _run("evaluate", str(run), "--episodes", "1", cwd=elsewhere)
    said = _run("check-env", "my_env:make", f"run.pythonpath=[{project}]", cwd=elsewhere)
    assert "one seed gives one episode" in said


def test_a_module_of_the_project_that_ours_hides_is_named_before_the_run(project: Path) -> None:
    (project / "services").mkdir()
    (project / "services" / "prices.py").touch()
    (project / "compress.py").touch()
    (project / "correctors").mkdir()  # empty: no module
    said = _run("train", "myproj/config.yaml", *_SHORT, cwd=project.parent)
    (line,) = [line for line in said.splitlines() if "rename yours" in line]
    assert f"{project / 'services'}" in line and f"{project / 'compress.py'}" in line
    assert "correctors" not in line
    # a run that imports nothing of the project is not concerned
    said = _run("train", "cartpole", *_SHORT, cwd=project)
    assert "rename yours" not in said
