"""Every way to end a run ends all processes in time, with a checkpoint."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from aclearn.runs import load_newest
from tests.support.metrics_lines import check_lines
from tests.support.system import CARTPOLE, Run, System
from tests.support.waiting import DEADLINE_S, wait_for


def _learned_in_checkpoint(folder: Path) -> int:
    checkpoint = load_newest(folder / "checkpoints")
    assert checkpoint is not None
    return int(checkpoint.state["account"]["learned_steps"])


def test_ctrl_c_ends_the_run_within_ten_seconds_with_a_checkpoint(system: System) -> None:
    # a checkpoint every hour: the one at the end was saved because of the signal
    run = system.train(system.config(CARTPOLE, run={"checkpoint_every_s": 3600.0}))
    run.wait_until_learning(beyond=500)
    summary = run.finish(signal.SIGINT)
    assert summary["reason"] == "SIGINT"
    assert summary["in_flight_steps"] == 0
    assert _learned_in_checkpoint(run.folder) == summary["learned_steps"] > 500
    assert "SIGINT" in run.output and "Traceback" not in run.output


def test_a_signal_during_the_start_ends_it_too_and_the_summary_names_it(system: System) -> None:
    run = system.train(system.config(CARTPOLE))
    run.wait_for(lambda: len(run.pids()) == 4, "every role is started")
    run.signal(signal.SIGTERM)
    assert run.wait(within_s=10.0) == 128 + signal.SIGTERM, run.diagnosis()
    check_lines(run.lines())
    assert run.summary()["reason"] == "SIGTERM"
    assert "Traceback" not in run.output


def test_ctrl_c_during_the_first_imports_says_nothing(system: System) -> None:
    mark = system.folder / "imports"
    (system.folder / "typer.py").write_text(
        f"import pathlib, time\npathlib.Path({str(mark)!r}).touch()\ntime.sleep(600)\n"
    )
    system.environment["PYTHONPATH"] = f"{system.folder}:{system.environment['PYTHONPATH']}"
    command = system.command("train", system.config(CARTPOLE))
    wait_for(mark.exists, "it is importing")
    command.signal(signal.SIGINT)
    assert (command.wait(within_s=10.0), command.output) == (130, "")


def test_ctrl_c_before_a_run_has_begun_leaves_nothing(system: System) -> None:
    content = system.config(CARTPOLE).read_text()
    slow = system.folder / "slow.yaml"
    os.mkfifo(slow)
    command = system.command("train", slow)
    with slow.open("w") as pipe:  # opening waits for the reader
        command.signal(signal.SIGINT)
        pipe.write(content)
    assert (command.wait(within_s=20.0), command.output) == (130, "")
    assert not (system.folder / "runs").exists()


@pytest.mark.parametrize("learning", [False, True])
def test_ctrl_c_again_and_again_leaves_no_process_and_no_file(
    system: System, learning: bool
) -> None:
    run = system.train(system.config(CARTPOLE))
    run.wait_for(lambda: len(run.pids()) == 4, "every role is started")
    if learning:
        run.wait_until_learning()

    def ended() -> bool:
        run.signal(signal.SIGINT)
        return run.process.poll() is not None

    wait_for(ended, "the command ends", within_s=10.0)
    assert run.wait() in (130, -signal.SIGINT)
    system.wait_until_nothing_lives(within_s=10.0)  # and no directory, as after every test


def test_the_socket_files_go_when_the_parent_is_killed_in_the_first_second(system: System) -> None:
    run = system.train(system.config(CARTPOLE))
    run.wait_for(lambda: run.pids(), "a role is started")
    run.process.kill()
    run.process.wait(timeout=DEADLINE_S)
    system.wait_until_nothing_lives(within_s=20.0)  # and no directory, as after every test


def test_roles_end_within_ten_seconds_when_the_parent_is_killed(system: System) -> None:
    run: Run = system.train(system.config(CARTPOLE, actors={"inference": "predictor"}))
    run.wait_until_learning()
    assert len(run.pids()) == 5
    learned = run.last()["learned_steps"]
    run.process.kill()
    run.process.wait(timeout=DEADLINE_S)
    system.wait_until_nothing_lives(within_s=10.0)
    summary = run.check_account()
    assert _learned_in_checkpoint(run.folder) == summary["learned_steps"] >= learned
