"""Runs of several seeds as processes: their end by a signal or the parent's death."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from aclearn.runs import load_newest, read_metrics
from tests.support.metrics_lines import check_lines
from tests.support.system import CARTPOLE, Command, System
from tests.support.waiting import DEADLINE_S, wait_for


def _lines(run: Path) -> list[dict]:
    metrics = run / "metrics.jsonl"
    return read_metrics(metrics) if metrics.exists() else []


def _summary(run: Path) -> dict:
    return json.loads((run / "summary.json").read_text())


def _start_two(system: System) -> tuple[Command, Path, list[Path]]:
    """Two seeds at a time, which both learn and have no end."""
    # a checkpoint every hour: the one at the end was saved because of the signal
    config = system.config(CARTPOLE, run={"name": "pole", "checkpoint_every_s": 3600.0})
    runs = [system.folder / "runs" / "pole" / f"seed-{seed}" for seed in (4, 2)]
    command = system.command("train", config, "--seeds", "4,2", "--at-once", "2")

    def learn() -> bool:
        return all(any(line["learned_steps"] > 0 for line in _lines(run)) for run in runs)

    wait_for(learn, "both learn", within_s=120.0, context=lambda: command.output)
    return command, config, runs


def test_ctrl_c_ends_every_seed_in_time_with_a_checkpoint_and_they_resume(system: System) -> None:
    command, config, runs = _start_two(system)
    command.signal(signal.SIGINT)
    assert command.wait(within_s=10.0) == 130, command.output
    for run in runs:
        summary = _summary(run)
        assert summary["reason"] == "SIGINT" and summary["in_flight_steps"] == 0
        saved = load_newest(run / "checkpoints").state["account"]["learned_steps"]
        assert saved == summary["learned_steps"] > 0
        assert f"{run.name}: ended by SIGINT\n" in command.output
    assert f"the runs are in {runs[0].parent}; --resume continues them" in command.output
    assert "Traceback" not in command.output
    system.wait_until_nothing_lives(within_s=5.0)

    bound = max(_summary(run)["updates"] for run in runs) + 20
    words = ("--seeds", "4,2", "--resume", f"run.max_updates={bound}")
    resumed = system.command("train", config, *words)
    assert resumed.wait(within_s=120.0) == 0, resumed.output
    for run in runs:
        summary = _summary(run)
        assert (summary["reason"], summary["updates"]) == ("max_updates", bound)
        assert summary["generation"] == 1
        check_lines(_lines(run))
    assert "next: aclearn plot" in resumed.output


def test_every_process_of_every_seed_ends_when_the_command_is_killed(system: System) -> None:
    command, _, runs = _start_two(system)
    command.process.kill()
    command.process.wait(timeout=DEADLINE_S)
    system.wait_until_nothing_lives(within_s=10.0)
    for run in runs:
        summary = _summary(run)
        saved = load_newest(run / "checkpoints").state["account"]["learned_steps"]
        assert saved == summary["learned_steps"] > 0
