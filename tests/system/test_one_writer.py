"""One run, one writer of each file: who comes second is refused before it writes anything."""

from __future__ import annotations

import os
from pathlib import Path

from aclearn.runs import load_newest
from tests.support.system import CARTPOLE, Run, System, free_port


def _refused(command: Run, *words: str) -> None:
    assert command.wait(within_s=20.0) == 64, command.output
    [line] = command.output.splitlines()
    assert line.startswith(f"aclearn: the run folder {command.folder} is being written by ")
    for word in words:
        assert f"{word} on host {os.uname().nodename}, since " in line, line
    assert "under another run.name" in line


def _files(folder: Path) -> set[Path]:
    """All but the checkpoints: the run itself may save one meanwhile."""
    return {path for path in folder.rglob("*") if path.parent != folder / "checkpoints"}


def test_roles_by_hand_are_refused_in_the_folder_of_a_run_and_its_own_are_not(
    system: System,
) -> None:
    config = system.config(CARTPOLE, run={"checkpoint_every_s": 3600.0})
    run = system.train(config)
    run.wait_until_learning(beyond=300)
    before = _files(run.folder)
    elsewhere = f"tcp://127.0.0.1:{free_port()}"
    guests = [
        system.role("monitor", config, elsewhere),
        system.role("trainer", config, run.monitor_address()),
        system.train(config, "--resume"),
    ]
    for guest in guests:
        _refused(guest, f"aclearn train (process {run.process.pid}")
    assert _files(run.folder) == before
    newest = load_newest(run.folder / "checkpoints")
    assert newest is not None and newest.state["generation"] == 0

    # the parent's own lock has ended, its roles still save: the next run waits for them
    learned = run.last()["learned_steps"]
    run.process.kill()
    run.process.wait()
    again = system.train(config, "--resume")
    again.wait_until_learning(beyond=learned)
    again.wait_for(lambda: again.last()["generation"] == 1, "its trainer goes on from the last one")
    again.finish()
