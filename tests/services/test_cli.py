"""The command line's own decisions, without a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from aclearn.config import load_config
from aclearn.runs import RunFolder
from services.cli import _resumed


@pytest.mark.parametrize("name", ["42", "null", "1e5", "true", "007"])
def test_a_run_is_resumed_by_its_name_whatever_yaml_takes_it_for(name: str, tmp_path: Path) -> None:
    path = tmp_path / "game.yaml"
    path.write_text(f"run: {{name: '{name}', dir: '{tmp_path}/a: b'}}\nenv: {{id: CartPole-v1}}\n")
    given = load_config(path)
    RunFolder.create(given.run.dir, name, given.to_yaml()).close()

    resumed = _resumed(path, given, ["run.max_updates=3"])
    assert (resumed.run.name, resumed.run.dir) == (name, f"{tmp_path}/a: b")
    assert resumed.run.max_updates == 3
