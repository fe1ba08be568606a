"""A run's files stay where the command started, whatever an environment does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import wandering
from tests.support.cli import aclearn


def test_an_environment_that_changes_the_working_directory_moves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    wandering.copy_into(here)
    monkeypatch.syspath_prepend(here)
    (here / "c.yaml").write_text(
        "run: {name: r, deterministic: true, checkpoint_every_s: 0.1}\n"
        f"env: {{id: 'wandering:Wandering', kwargs: {{to: '{elsewhere}'}}}}\n"
        "actors: {processes: 1, envs_per_group: 2}\ncompressor: {chain: [onnx]}\n"
    )

    def call(*words: str) -> None:
        monkeypatch.chdir(here)
        aclearn(*words)

    call("train", "c.yaml", "run.max_updates=4")
    # a moved run continues in its new place
    (here / "runs").rename(here / "moved")
    call("train", "moved/r/config.yaml", "--resume", "run.max_updates=8")
    call("export", "moved/r", "--to", "policy.onnx")
    call("publish", "moved/r", "--out", "hub", "--episodes", "1")
    assert "| training time |" in (here / "hub" / "README.md").read_text()
    kept = {path.name for path in here.iterdir()} - {"__pycache__"}
    assert kept == {"c.yaml", "hub", "moved", "policy.onnx", "wandering.py"}
    assert list(elsewhere.iterdir()) == []
