"""The command `sweep`: which sweep `--resume` continues."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import yaml

from aclearn.errors import ConfigError, RunFolderTaken
from aclearn.launch import StopFlag
from services.commands.sweep import run_sweep

pytest.importorskip("optuna")


def test_a_sweep_is_not_continued_with_an_edited_configuration(tmp_path: Path) -> None:
    config, path = tmp_path / "own.yaml", tmp_path / "sweep.yaml"

    def write(discount: float, trials: int = 2) -> None:
        given = {
            "base": "cartpole",
            "run": {"dir": str(tmp_path / "runs")},
            "loss": {"discount": discount},
        }
        config.write_text(yaml.safe_dump(given))
        search = {"optimiser.learning_rate": {"log": [1e-4, 1e-2]}}
        sweep = {"config": "own.yaml", "search": search, "steps": 100, "trials": trials}
        path.write_text(yaml.safe_dump(sweep))

    stop = StopFlag()
    stop.set("SIGTERM")  # before the first run
    write(0.9)
    folder = run_sweep(path, resume=False, on="local", at_once=1, stop=stop)
    write(0.8)
    with pytest.raises(ConfigError, match=r"the same config\.loss\.discount, or start a new"):
        run_sweep(path, resume=True, on="local", at_once=1, stop=stop)
    write(0.9, trials=3)
    assert run_sweep(path, resume=True, on="local", at_once=1, stop=stop) == folder


def test_a_folder_that_a_killed_start_has_left_is_begun_anew(tmp_path: Path) -> None:
    runs, path = tmp_path / "runs", tmp_path / "sweep.yaml"
    search = {"optimiser.learning_rate": {"log": [1e-4, 1e-2]}}
    sweep = {"config": "cartpole", "name": "s", "search": search, "steps": 100}
    path.write_text(yaml.safe_dump(sweep | {"set": {"run.dir": str(runs)}}))
    stop = StopFlag()
    stop.set("SIGTERM")  # before the first run
    start = partial(run_sweep, path, on="local", at_once=1, stop=stop)
    (runs / "s").mkdir(parents=True)
    for name in (".lock", "settings.json.tmp"):  # killed while it wrote the settings
        (runs / "s" / name).touch()
    assert start(resume=False) == start(resume=True) == runs / "s"
    with pytest.raises(RunFolderTaken, match="s exists already; continue it with --resume, or"):
        start(resume=False)
    (runs / "s" / "settings.json").unlink()
    with pytest.raises(RunFolderTaken, match="s exists already; give another name"):
        start(resume=False)
