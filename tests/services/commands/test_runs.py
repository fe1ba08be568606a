"""`aclearn runs`, `aclearn configs`, and hints for what a user types instead."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from aclearn.config import load_config, shipped_configs, summary_of
from aclearn.errors import AclearnError
from aclearn.runs import RunFolder, is_locked, lock_role
from tests.support.cli import aclearn


def _run(dir: Path, name: str, age_s: float, **summary: object) -> RunFolder:
    folder = RunFolder.create(dir, name, "env: {id: CartPole-v1}\n")
    line = {"time_s": 5.0, "env_steps": 12345, "return_mean_100": 21.5}
    folder.metrics_path.write_text(json.dumps(line) + "\n")
    if summary:
        folder.summary_path.write_text(json.dumps(line | summary))
    os.utime(folder.metrics_path, (time.time() - age_s,) * 2)
    return folder


def test_runs_are_listed_with_state_steps_return_and_age_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AclearnError, match="there is no folder runs"):
        aclearn("runs")
    long = "a-very-long-name-of-a-run-that-no-narrow-terminal-holds-1"
    running = _run(tmp_path / "runs", "pole-2", 0.0)
    _run(tmp_path / "runs", "pole-1", 60.0, reason="target_reached").close()
    _run(tmp_path / "runs", long, 7200.0, reason="role failed: actor-0: it died").close()
    _run(tmp_path / "runs", "killed-1", 90_000.0).close()
    _run(tmp_path / "runs" / "pole-seeds-1", "seed-3", 90_001.0).close()
    RunFolder.create(tmp_path / "runs", "empty-1", "x\n").close()
    (tmp_path / "runs" / "notes").mkdir()
    monkeypatch.setenv("COLUMNS", "200")
    head, *rows = aclearn("runs").splitlines()
    assert head.split() == ["run", "state", "steps", "return", "age"]
    told = {words[0]: words[1:] for words in (row.split() for row in rows)}
    assert told["pole-2"][:3] == ["running", "12,345", "21.50"]
    assert told["pole-1"][:3] == ["target_reached", "12,345", "21.50"]
    assert told[long][:2] == ["role", "failed"] and told["killed-1"][0] == "unfinished"
    assert told["empty-1"][:3] == ["unfinished", "-", "-"] and "notes" not in told
    assert told["pole-seeds-1/seed-3"][0] == "unfinished"
    order = [row.split()[0] for row in rows]
    assert order.index("pole-2") < order.index("pole-1") < order.index(long)
    monkeypatch.setenv("COLUMNS", "60")
    narrow = aclearn("runs")
    assert all(len(row) <= 60 for row in narrow.splitlines())
    assert narrow.count("12,345") == 5 and "…" not in narrow
    running.close()
    # roles started one by one share the run
    lock = lock_role(running.path, "trainer", by_hand=True)
    assert is_locked(running.path)
    lock.close()
    assert not is_locked(running.path)


def test_configurations_are_listed_with_whole_titles_in_columns() -> None:
    rows = list(zip(aclearn("configs").splitlines(), shipped_configs().items(), strict=True))
    assert len({row.rindex(summary_of(path)) for row, (_, path) in rows}) == 1
    for row, (name, path) in rows:
        text = " ".join(line.removeprefix("#").strip() for line in path.read_text().splitlines())
        assert row.startswith(f"{name} ") and text.startswith(f"{summary_of(path)}.")


def test_a_folder_with_a_configuration_is_one(tmp_path: Path, monkeypatch) -> None:
    run = RunFolder.create(tmp_path / "runs", "pole-1", load_config("cartpole").to_yaml())
    run.close()
    assert load_config(run.path).run.name == "pole-1"
    monkeypatch.chdir(tmp_path)
    assert load_config("runs/pole-1").run.name == "pole-1"
    monkeypatch.chdir("runs")
    with pytest.raises(AclearnError, match=r"given by a path: \./pole-1"):
        load_config("pole-1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train CartPole-v1", r"did you mean cartpole .*`aclearn configs`.*--env CartPole-v1$"),
        ("train nonsense", r"under this name\. `aclearn configs` lists all names"),
        ("train ALE/Pong-v5", r"--env ALE/Pong-v5$"),
        ("train my_env:make", r"--env my_env:make$"),
        ("train cartpole --seed 2", r'override "--seed": .* for instance run\.seed=2$'),
        ("train cartpole --run.seed 2", r"for instance run\.seed=2$"),
        ("train cartpole --resum --overwrite", r"for instance run\.seed=3$"),
        ("train cartpole --max-env-steps=5", r"for instance run\.max_env_steps=5$"),
        ("train --seed 2 cartpole", r'"--seed": .* for instance run\.seed=2$'),
        ("check-env ./f.py:Base", r"not a path: f:Base"),
        ("train cartpole env.id=nets/own.py:Net", r"not a path: own:Net; .*\[nets\]"),
        (
            "train cartpole loss.clip_range=0.2",
            r"key of loss\.kind ppo, impact, and this loss is a",
        ),
        (
            "train cartpole loss.kind=ddpg",
            r"key of loss\.kind .*this loss is ddpg; .* configuration resident/pendulum_hddpg",
        ),
        ("check-env tests.services.commands.test_runs:_NUMBER", "is an int, expected"),
    ],
)
def test_what_a_user_types_instead_gets_a_hint(words: str, said: str) -> None:
    with pytest.raises(AclearnError, match=said) as refused:
        aclearn(*words.split())
    assert "did you mean loss." not in str(refused.value) and len(str(refused.value)) < 400


_NUMBER = 3


def test_the_next_commands_of_a_project_change_into_its_folder_only(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "next: cd own\n      aclearn check-env my_env:make\n" in aclearn("new", "own")
    said = aclearn("new", ".")
    assert "next: aclearn check-env my_env:make\n" in said and "cd ." not in said
