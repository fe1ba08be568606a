"""`aclearn train --seeds`: runs of several seeds in one folder. Each is a real process."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import yaml

import aclearn as library
from aclearn.config import load_config
from aclearn.errors import AclearnError, ArgumentError, RoleFailure
from aclearn.runs import RunFolder
from services.commands.seeds import check_seeds, read_seeds
from services.monitor.run_clock import STARTED_AT_VARIABLE, moment
from tests.support.cli import aclearn

_CONFIG = {
    "run": {
        "deterministic": True,
        "max_updates": 4,
        "checkpoint_every_s": 0.1,
        "metrics_every_s": 0.05,
    },
    "env": {"id": "CartPole-v1"},
    "policy": {"architecture": "mlp", "hidden": [8]},
    "actors": {"processes": 1, "envs_per_group": 4, "unroll_length": 5},
}
#: Fails while there is a file of the seed's name, which is in the command of its run.
_FAILING = """
import sys
from pathlib import Path

from gymnasium.envs.classic_control import CartPoleEnv


class Pole(CartPoleEnv):
    def step(self, action):
        for word in sys.argv:
            if "seed-2" in word and (Path(__file__).parent / "broken").exists():
                raise RuntimeError("the pole is broken")
        return super().step(action)
"""


def _write(folder: Path, **groups) -> Path:
    path = folder / "pole.yaml"
    path.write_text(yaml.safe_dump(_CONFIG | groups))
    return path


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration in the current folder, where runs/ is."""
    monkeypatch.chdir(tmp_path)
    return _write(tmp_path)


@pytest.mark.parametrize(
    ("text", "first", "seeds"),
    [
        ("3", 1, [1, 2, 3]),
        ("2", 7, [7, 8]),
        ("1,4,7", 3, [1, 4, 7]),
        (" 9, 2 ", 1, [9, 2]),
        ("20260101,", 1, [20260101]),
    ],
)
def test_seeds_are_a_number_or_a_list(text: str, first: int, seeds: list[int]) -> None:
    assert check_seeds(read_seeds(text), first) == seeds


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "0"], r"--seeds: expected at least one seed, got none"),
        (["--seeds", "1,4,1"], r"--seeds: each seed runs once; 1 is there more than once"),
        (["--seeds", "some"], r"--seeds: expected a number of seeds, e\.g\. 5, .* got 'some'"),
        (["--seeds", "1,2147483648"], r"expected seeds from 0 to 2147483647, got 2147483648"),
        (["--seeds", "20260101"], r"at most 1000 are run; .* run\.seed=20260101, or a list"),
        (["--at-once", "2"], r"--at-once is the number of runs of --seeds .*; give --seeds"),
        (["--seeds", "2", "--overwrite"], r"give run\.name, or leave --overwrite out"),
        (["--seeds", "2", "--at-once", "2", "monitor.port=5555"], r"at one monitor\.port, 5555"),
        (["--seeds", "2", "--resume"], r"there are no runs of --seeds of pole in .*runs to cont"),
    ],
)
def test_what_cannot_be_run_is_refused_before_a_folder_is_made(
    config: Path, words: list[str], message: str
) -> None:
    with pytest.raises(AclearnError, match=message):
        aclearn("train", config, *words)
    assert not Path("runs").exists()


def test_the_folder_of_one_run_and_one_that_exists_are_no_places_for_seeds(config: Path) -> None:
    single, taken = Path("runs/pole-1"), Path("runs/taken")
    for name in ("checkpoints", "logs"):
        (single / name).mkdir(parents=True)
    (single / "config.yaml").write_text(config.read_text())
    for word in ((), ("--resume",)):
        with pytest.raises(AclearnError, match=r"pole-1 is the folder of one run, not of several"):
            aclearn("train", single / "config.yaml", "--seeds", "2", *word)
    taken.mkdir()
    for word in ((), ("--overwrite",)):
        with pytest.raises(AclearnError, match=r"taken exists already; continue .* --resume"):
            aclearn("train", config, "--seeds", "2", "run.name=taken", *word)
    assert list(taken.iterdir()) == []
    for name in ("seed-1", "seed-3", "seed-10"):
        (taken / name).mkdir()
        (taken / name / "config.yaml").write_text(config.read_text())
    (taken / "seeds.yaml").write_text(config.read_text())
    with pytest.raises(AclearnError, match=r"taken has runs that .*: seed-3, seed-10; give their"):
        aclearn("train", config, "--seeds", "2", "--overwrite", "run.name=taken")
    assert not (taken / "seed-2").exists()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Names of the runs that each command would train."""
    commands: list[list[str]] = []

    class Started:
        def __init__(self, runs, **_) -> None:
            commands.append([run.name for run in runs])

        def run(self) -> None:
            pass

    monkeypatch.setattr("services.commands.seeds.SeedRuns", Started)
    return commands


def test_runs_to_be_replaced_are_replaced_before_the_first_begins(config, started) -> None:
    aclearn("train", config, "--seeds", "2", "run.name=x")
    with RunFolder.create("runs/x", "seed-2", config.read_text()) as old:
        old.summary_path.write_text("{}")
    aclearn("train", config, "--seeds", "2", "run.name=x", "--overwrite", "run.max_updates=9")
    # a stop here leaves nothing of the old run that --resume would take for a result
    assert not old.summary_path.exists()
    found = load_config(old.config_path)
    assert (found.run.name, found.run.seed, found.run.max_updates) == ("seed-2", 2, 9)


def test_resumed_seeds_count_from_the_first_of_the_folder(config, started) -> None:
    aclearn("train", config, "--seeds", "2", "run.name=x", "run.seed=10")
    aclearn("train", config, "--seeds", "3", "run.name=x", "--resume")
    aclearn("train", config, "--seeds", "1", "run.name=x", "--resume", "run.seed=20")
    assert started == [["seed-10", "seed-11"], ["seed-10", "seed-11", "seed-12"], ["seed-20"]]


def test_a_seed_that_fails_is_named_and_resumed_and_those_that_are_over_stay(
    config: Path, tmp_path: Path
) -> None:
    (tmp_path / "failing.py").write_text(_FAILING)
    broken = tmp_path / "broken"
    broken.touch()
    _write(tmp_path, env={"id": "failing:Pole"})
    with pytest.raises(RoleFailure) as raised:
        aclearn("train", config, "--seeds", "2", "run.max_updates=3", "--at-once", "2")
    runs = tmp_path / "runs" / "pole-seeds-1"
    said = str(raised.value)
    assert said.startswith(f"1 of 2 seeds failed; the others are in {runs}, and --resume continues")
    assert re.search(r"\n  seed-2: exit status \d+: .*the pole is broken.*; its log is ", said)
    assert f"its log is {runs / 'seed-2.log'}" in said
    first = json.loads((runs / "seed-1" / "summary.json").read_text())
    assert (first["reason"], first["seed"], first["updates"]) == ("max_updates", 1, 3)

    broken.unlink()
    files = [path for path in (runs / "seed-1").rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files if path.name != "config.yaml"}
    new = ("run.max_wall_s=900", "optimiser.learning_rate=0.01")
    said = aclearn("train", config, "--seeds", "3", "--resume", "--at-once", "2", *new)
    assert "not taken from" in said and "run.max_updates" in said  # 4 in the file
    assert "seed-1: is over, and stays\n" in said
    assert before == {path: path.read_bytes() for path in before}
    # a new bound is for all of them, another key for those that learn with it
    [over, *resumed] = [load_config(runs / f"seed-{seed}" / "config.yaml") for seed in (1, 2, 3)]
    assert {run.run.max_wall_s for run in (over, *resumed)} == {900.0}
    assert [run.optimiser.learning_rate == 0.01 for run in (over, *resumed)] == [False, True, True]
    for seed in (2, 3):
        summary = json.loads((runs / f"seed-{seed}" / "summary.json").read_text())
        assert (summary["updates"], summary["seed"]) == (3, seed)
        assert f"seed-{seed}: run seed-{seed} (seed {seed}) ended: max_updates" in said
    assert "next: aclearn plot runs/pole-seeds-1\n      aclearn compare runs/pole-seeds-1" in said
    # a higher one continues what is over
    said = aclearn("train", config, "--seeds", "1", "--resume", "run.max_updates=5")
    assert json.loads((runs / "seed-1" / "summary.json").read_text())["updates"] == 5
    assert "run.max_updates" not in said


def test_python_trains_several_seeds_and_gets_their_runs(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_at = time.monotonic()
    monkeypatch.setenv(STARTED_AT_VARIABLE, str(moment(begun_at)))  # as of the command
    settings = {"run.name": "mine", "run.max_updates": 2}
    runs = library.train_seeds(config, settings, seeds=[7, 3], at_once=1)
    took_s = time.monotonic() - begun_at
    assert [(run.name, run.config.run.seed) for run in runs] == [("seed-7", 7), ("seed-3", 3)]
    assert {run.path.parent for run in runs} == {Path("runs/mine").absolute()}
    # the clock of each begins with itself
    assert sum(run.summary["time_s"] for run in runs) < took_s
    with pytest.raises(AclearnError, match=r"mine exists already; continue .* resume=True"):
        library.train_seeds(config, settings, seeds=[7])
    for seeds, words in ((0, "seeds: expected 1 or more"), ("5", "seeds: expected a whole number")):
        with pytest.raises(ArgumentError, match=words):
            library.train_seeds(config, settings, seeds=seeds)
    with pytest.raises(AclearnError, match="seeds: each seed runs once; 3 is"):
        library.train_seeds(config, seeds=[3, 3])
