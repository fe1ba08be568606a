"""`aclearn train` on the folder of an ended run: refused, resumed, or left unchanged."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path

import pytest
import yaml

from aclearn.errors import AclearnError
from aclearn.runs import list_checkpoints, load_newest, read_metrics
from tests.support.cli import aclearn
from tests.support.metrics_lines import check_lines

_CONFIG = {
    "run": {
        "name": "r",
        "deterministic": True,
        "max_env_steps": 4000,
        "checkpoint_every_s": 0.1,
        "metrics_every_s": 0.05,
    },
    "env": {"id": "CartPole-v1"},
    "policy": {"architecture": "mlp", "hidden": [16]},
    "actors": {"processes": 2, "envs_per_group": 16, "unroll_length": 5},
    "trainer": {"unrolls_per_batch": 2},
}


def write(path: Path, folder: Path, **groups) -> Path:
    """The configuration of a run that lies in `folder`."""
    path.write_text(
        yaml.safe_dump(_CONFIG | {"run": _CONFIG["run"] | {"dir": str(folder)}} | groups)
    )
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a run that has ended at its bound."""
    folder = tmp_path_factory.mktemp("finished")
    said = aclearn("train", write(folder / "c.yaml", folder))
    assert "run r (seed 1) ended: max_env_steps" in said
    lines = read_metrics(folder / "r" / "metrics.jsonl")
    check_lines(lines)
    checkpoint = load_newest(folder / "r" / "checkpoints")
    assert checkpoint.state["account"]["learned_steps"] == lines[-1]["learned_steps"] > 0
    return folder


@pytest.fixture
def config(finished: Path, tmp_path: Path) -> Path:
    """The configuration of a copy of it, in `tmp_path`."""
    shutil.copytree(finished / "r", tmp_path / "r")
    return write(tmp_path / "c.yaml", tmp_path)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_that_is_over_is_not_started_again_and_names_the_key_to_go_on_with(
    config: Path,
) -> None:
    run = config.parent / "r"
    before = contents(run)
    assert aclearn("train", config, "--resume") == (
        f"the run in {run} is over: it has reached run.max_env_steps=4000. To resume it, give "
        "a higher bound, e.g. run.max_env_steps=8000\n"
    )
    said = aclearn("train", config, "--resume", "run.target_return=9")
    assert "it has reached its target of 9 at" in said
    assert "give run.stop_at_target=false or a higher run.target_return" in said
    assert contents(run) == before


def test_a_resumed_run_keeps_its_configuration_and_says_what_the_file_would_have_changed(
    config: Path,
) -> None:
    run = config.parent / "r"
    before = yaml.safe_load((run / "config.yaml").read_text())
    edited = write(config, config.parent, optimiser={"learning_rate": 0.5})
    said = aclearn("train", edited, "--resume", "run.max_env_steps=5000")
    words = f"the run keeps its own configuration; not taken from {edited}: optimiser.learning_rate"
    assert words in said
    after = yaml.safe_load((run / "config.yaml").read_text())
    assert after["optimiser"] == before["optimiser"]
    assert after["run"]["max_env_steps"] == 5000


def damage(path: Path, *, truncate: bool) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 1
    path.write_bytes(content[:middle] if truncate else content)


def test_a_damaged_checkpoint_is_skipped_and_with_none_left_the_run_ends(
    config: Path, caplog
) -> None:
    checkpoints = config.parent / "r" / "checkpoints"
    newest, second, *_ = (
        path.with_suffix(".safetensors") for path in list_checkpoints(checkpoints)
    )
    damage(newest, truncate=False)
    with caplog.at_level(logging.INFO):
        aclearn("train", config, "--resume", "run.max_env_steps=5000")
    assert newest.stem in caplog.text
    assert f"event=resumed checkpoint={second.stem}" in caplog.text
    check_lines(read_metrics(config.parent / "r" / "metrics.jsonl"))

    for path in (every := sorted(checkpoints.glob("*.safetensors"))):
        damage(path, truncate=True)
    with pytest.raises(AclearnError, match="damaged") as raised:
        aclearn("train", config, "--resume", "run.max_env_steps=8000")
    assert str(every[-1]) in str(raised.value)


def _start(folder: Path, *words: str, name: str = "pole.yaml", env: str = "CartPole-v1") -> str:
    """Two updates of a run without a name, of the configuration `name` in `folder`."""
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    groups = _CONFIG | {"env": {"id": env}, "run": {"deterministic": True, "max_updates": 2}}
    path.write_text(yaml.safe_dump(groups | {"actors": {"processes": 1, "envs_per_group": 2}}))
    return aclearn("train", path, *words)


def test_runs_without_a_name_are_numbered_and_the_newest_of_the_configuration_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    assert "run pole-1 (seed 1) ended: max_updates" in _start(tmp_path)
    assert "run pole-2 (seed 7) ended: max_updates" in _start(tmp_path, "run.seed=7")
    # a file of the same name: its runs are counted together, and resumed apart
    assert "run pole-3 (seed 1) ended" in _start(tmp_path / "other", env="Acrobot-v1")
    assert {json.loads((p / "summary.json").read_text())["seed"] for p in runs.iterdir()} == {1, 7}

    def resumed(*words: str, name: str = "pole.yaml") -> str:
        said = aclearn("train", name, "--resume", *words)
        return re.search(r"aclearn: resuming (\S+)", said)[1].rpartition("/")[2]

    assert resumed() == "pole-2"
    assert resumed("run.seed=1") == "pole-1"
    assert resumed(name="other/pole.yaml") == "pole-3"
    with pytest.raises(AclearnError, match=r"no run of pole with run\.seed=5 .* has run\.seed=7"):
        resumed("run.seed=5")
    with pytest.raises(AclearnError, match=r"pole-3 is of another run: env\.id is 'Acrobot-v1'"):
        resumed("env.id=MountainCar-v0")
    with pytest.raises(AclearnError, match=r"there is no run of cartpole in .*without --resume"):
        aclearn("train", "cartpole", "--resume")
    # a start that learned nothing comes last
    shutil.copytree(runs / "pole-1", runs / "pole-9")
    for path in [*(runs / "pole-9/checkpoints").iterdir(), runs / "pole-9/metrics.jsonl"]:
        path.unlink()
    assert resumed() == "pole-2"
    assert "run pole-9 (seed 1) ended" in _start(tmp_path)


def test_an_existing_name_is_refused_resumed_or_replaced(config: Path) -> None:
    run = config.parent / "r"
    with pytest.raises(AclearnError, match="leave one out"):
        aclearn("train", config, "--resume", "--overwrite")
    with pytest.raises(AclearnError, match=r"give run\.name, or leave --overwrite out"):
        aclearn("train", config, "--overwrite", "run.name=null")
    known = contents(run)
    with pytest.raises(AclearnError, match=rf"{run} exists already.*--resume.*run\.name"):
        aclearn("train", config)
    assert contents(run) == known
    before = read_metrics(run / "metrics.jsonl")[-1]
    said = aclearn("train", config, "--overwrite", "run.max_env_steps=1000")
    assert f"{run} was a run; it is replaced" in said or "run r (seed 1) ended" in said
    lines = read_metrics(run / "metrics.jsonl")
    check_lines(lines)
    assert lines[-1]["learned_steps"] < before["learned_steps"] and lines[0]["generation"] <= 1
