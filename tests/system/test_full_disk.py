"""A full disk: training continues and reports it, and lost learning fails the command."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aclearn.runs import load_newest
from tests.support.disk import Disk, InjectedDisk, mounted_disk
from tests.support.system import CARTPOLE, RESIDENT, Run, System, free_port
from tests.support.waiting import DEADLINE_S, wait_for

#: With Adam's state about 220 kB a checkpoint, several of which fit on the disk.
_POLICY = {"hidden": [128, 128]}
_FULL = "No space left on device"


@pytest.fixture
def disk() -> Iterator[Disk]:
    """4 MB, mounted for the test."""
    with mounted_disk("4m") as disk:
        if isinstance(disk, str):
            pytest.skip(f"a small disk cannot be mounted here: {disk}")
        yield disk


def _begin(system: System, disk: Disk, base: dict[str, Any] = CARTPOLE, **run: object) -> Run:
    """A run on the disk that has saved learned updates."""
    config = system.config(base, run={"dir": str(disk.path), **run}, policy=_POLICY)
    started = system.train(config)
    started.wait_for(lambda: _saved(started) > 0, "a checkpoint of something learned")
    return started


def _unwrapped(run: Run) -> str:
    """The output with its lines joined, since the console wraps long ones."""
    return " ".join(run.output.split())


def _saved(run: Run) -> int:
    """Updates in the newest checkpoint."""
    names = sorted(path.stem for path in (run.folder / "checkpoints").glob("*.json"))
    return int(names[-1].split("-")[1]) if names else -1


def _ends_with_a_loss(run: Run) -> None:
    run.signal(signal.SIGTERM)
    assert run.wait(within_s=20.0) == 1, run.diagnosis()
    summary = run.summary()
    assert summary["reason"] == "SIGTERM"
    checkpoint = load_newest(run.folder / "checkpoints")
    assert checkpoint is not None
    saved = checkpoint.state["counters"]["updates"]
    steps = summary["learned_steps"] - checkpoint.state["account"]["learned_steps"]
    assert summary["unsaved_updates"] == summary["updates"] - saved > 0
    assert summary["unsaved_steps"] == steps > 0
    *_, words, error = run.output.splitlines()
    assert words.startswith("run r (seed 1) ended: SIGTERM")
    assert error == (
        f"aclearn: the last checkpoint could not be written: {_FULL} ({run.folder}/checkpoints); "
        f"{summary['unsaved_updates']} updates ({steps} agent steps) are lost. Of {run.folder}/"
        f"checkpoints {checkpoint.path.stem} stays; free space and resume with --resume"
    )
    assert "Traceback" not in run.output


def test_a_run_on_a_full_disk_says_so_at_once_and_fails_where_its_end_is_lost(
    system: System, disk: Disk
) -> None:
    run = _begin(system, disk)
    # room for metrics, but not for a checkpoint
    line = run.wait_for(
        # filled repeatedly: a successful save removes an older checkpoint
        lambda: disk.fill(leave=150_000) or ((x := run.last())["checkpoint_failures"] > 1 and x),
        "saves fail",
    )
    assert line["checkpoint_error"] == f"{_FULL} ({run.folder}/checkpoints)"
    assert line["checkpoint_age_s"] > 0 and line["unsaved_updates"] > 0
    told = f"event: checkpoints cannot be written: {line['checkpoint_error']}; the run continues"
    run.wait_for(lambda: told in _unwrapped(run), "the console tells")
    top = system.command("top", run.folder, "--once")
    assert top.wait() == 0
    assert " checkpoints failed, the newest is 0:00:" in top.output
    assert f" old: {_FULL}" in top.output

    told = f"event: metrics cannot be written: {_FULL} ({run.folder}); the run continues"
    run.wait_for(lambda: disk.fill() or told in _unwrapped(run), "the console tells of metrics too")

    disk.free()
    for things in ("checkpoints", "metrics"):
        over = f"event: {things} are written again\n"
        run.wait_for(lambda over=over: over in run.output, f"it is over for {things}")
        assert run.output.count(f"{things} cannot be written") == 1
    run.wait_for(lambda: run.last()["checkpoint_error"] is None, "nothing is wrong any more")

    twice = "checkpoints cannot be written"
    run.wait_for(lambda: disk.fill() or run.output.count(twice) == 2, "the console tells again")
    _ends_with_a_loss(run)
    assert run.summary()["metrics_failures"] > 0


def test_a_run_whose_files_cannot_be_written_says_so_and_goes_on(
    system: System, tmp_path: Path
) -> None:
    # where nothing can be mounted: writing fails as on a full disk
    disk = InjectedDisk(tmp_path / "runs", system.folder)
    run = system.train(system.config(CARTPOLE, run={"dir": str(disk.path)}))
    run.wait_for(lambda: _saved(run) > 0, "a checkpoint of something learned")
    disk.fill()
    for things in ("checkpoints", "metrics"):
        told = f"event: {things} cannot be written: {_FULL} ("
        run.wait_for(lambda told=told: told in _unwrapped(run), f"the console tells of {things}")
    disk.free()
    for things in ("checkpoints", "metrics"):
        over = f"event: {things} are written again\n"
        run.wait_for(lambda over=over: over in run.output, f"it is over for {things}")
    run.wait_until_learning(beyond=run.last()["learned_steps"] + 300)
    assert run.finish()["metrics_failures"] > 0


def test_a_trainer_by_hand_prints_what_is_lost(system: System, disk: Disk) -> None:
    config = system.config(CARTPOLE, run={"dir": str(disk.path)}, policy=_POLICY)
    address = f"tcp://127.0.0.1:{free_port()}"
    roles = {name: system.role(name, config, address) for name in ("monitor", "trainer", "actor")}
    run = roles["monitor"]
    run.wait_for(lambda: _saved(run) > 0, "a checkpoint of something learned")
    run.wait_for(
        lambda: disk.fill(leave=150_000) or run.last()["checkpoint_failures"] > 0, "saves fail"
    )
    run.signal(signal.SIGTERM)
    assert roles["trainer"].wait() == 1, roles["trainer"].output
    *_, last = roles["trainer"].output.splitlines()
    assert last.startswith(f"aclearn: the last checkpoint could not be written: {_FULL} (")
    for name in ("monitor", "actor"):
        roles[name].wait()
    assert run.summary()["unsaved_updates"] > 0


def test_a_deterministic_run_on_a_full_disk_fails_likewise(system: System, disk: Disk) -> None:
    run = _begin(system, disk, deterministic=True)
    told = "event: checkpoints cannot be written: "
    run.wait_for(lambda: disk.fill() or told in run.output, "the console tells")
    _ends_with_a_loss(run)


def test_a_run_of_resident_environments_on_a_full_disk_fails_likewise(
    system: System, disk: Disk
) -> None:
    pytest.importorskip("aclearn.resident")
    run = _begin(system, disk, RESIDENT)
    told = "event: checkpoints cannot be written: "
    run.wait_for(lambda: disk.fill() or told in run.output, "the console tells")
    _ends_with_a_loss(run)


def test_a_disk_that_is_full_from_the_start_is_named_and_nothing_is_trained(
    system: System, disk: Disk
) -> None:
    disk.fill(leave=200_000)
    config = system.config(CARTPOLE, run={"dir": str(disk.path)}, policy=_POLICY)
    run = system.train(config)
    assert run.wait() == 1
    assert "Traceback" not in run.output
    assert _FULL in run.output and f"{disk.path}/r" in run.output
    disk.fill()
    refused = system.train(config, "run.name=other")
    assert refused.wait() == 64
    [line] = refused.output.splitlines()
    assert line.startswith(f"aclearn: the run folder {disk.path}/other cannot be ")
    assert _FULL in line
    wait_for(lambda: not (disk.path / "other").exists(), "nothing is left of it")


def test_output_to_a_disk_that_has_room_again_goes_on(disk: Disk) -> None:
    source = (
        "from services.commands.output import make_output_lossy; make_output_lossy()\n"
        "for i in range(3):\n    print(f'line {i}', 'x' * 9000, flush=True)\n    input()"
    )
    path = disk.path / "output"
    with (
        path.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-c", source],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
        ) as writer,
    ):
        assert writer.stdin is not None and writer.stderr is not None
        wait_for(lambda: path.read_text().startswith("line 0"), "it has begun")
        disk.fill()
        writer.stdin.write("\n")
        writer.stdin.flush()
        told = writer.stderr.readline()
        disk.free()
        _, more = writer.communicate("\n\n", timeout=DEADLINE_S)
    assert _FULL in told and more == ""
    assert writer.returncode == 0
    assert "line 2 x" in path.read_text()  # after a part of line 1


def test_a_monitor_by_hand_whose_summary_is_not_written_tells_no_older_one(
    system: System, disk: Disk
) -> None:
    config = system.config(CARTPOLE, run={"dir": str(disk.path)})
    address = f"tcp://127.0.0.1:{free_port()}"
    first = system.role("monitor", config, address)
    first.wait_for(lambda: first.lines(), "it writes")
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    second = system.role("monitor", config, address)
    second.wait_for(lambda: "event=run_continued" in second.output, "it goes on")
    second.wait_for(lambda: (second.folder / ".reserved").exists(), "room is kept")
    (second.folder / ".reserved").unlink()
    disk.fill()
    second.signal(signal.SIGTERM)
    assert second.wait() == 1, second.output
    assert " ended: " not in second.output
    assert "summary.json could not be written, see" in second.output
