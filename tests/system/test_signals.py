"""However a run is ended, every process goes, in time, and a checkpoint is there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from system_harness import CARTPOLE, PATIENCE, Run, System, check_lines

from aclearn.runs import load_newest


def _learned_in_checkpoint(folder: Path) -> int:
    checkpoint = load_newest(folder / "checkpoints")
    assert checkpoint is not None
    return int(checkpoint.state["ledger"]["learned_steps"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_within_ten_seconds_with_a_checkpoint(
    system: System, number: signal.Signals
) -> None:
    # a checkpoint every hour: the one that is there in the end was saved because of the signal
    run = system.train(system.config(CARTPOLE, run={"checkpoint_every_s": 3600.0}))
    run.wait_until_learning(beyond=500)
    summary = run.finish(number)
    assert summary["reason"] == number.name
    assert summary["in_flight_steps"] == 0
    assert _learned_in_checkpoint(run.folder) == summary["learned_steps"] > 500
    assert number.name in run.output and "Traceback" not in run.output


def test_a_signal_during_the_start_ends_it_too(system: System) -> None:
    run = system.train(system.config(CARTPOLE))
    run.wait_for(lambda: len(run.pids()) == 4, "every role is started")
    run.signal(signal.SIGTERM)
    assert run.wait(within_s=10.0) == 143, run.diagnosis()
    check_lines(run.lines())


def test_roles_end_within_ten_seconds_when_the_parent_is_killed(system: System) -> None:
    run: Run = system.train(system.config(CARTPOLE, actors={"inference": "predictor"}))
    run.wait_until_learning()
    assert len(run.pids()) == 5
    learned = run.last()["learned_steps"]
    run.process.kill()
    run.process.wait(timeout=5 * PATIENCE)
    system.wait_until_nothing_lives(within_s=10.0)
    summary = run.check_books()
    assert _learned_in_checkpoint(run.folder) == summary["learned_steps"] >= learned
