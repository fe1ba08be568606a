"""Locks of a run folder: who may write beside whom, and the end of a lock."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

import aclearn
from aclearn.errors import RunFolderError
from aclearn.runs import lock, lock_role
from tests.support.waiting import DEADLINE_S

_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(aclearn.__file__).parents[1])}
lock_all = partial(lock.lock_all, roles=("monitor", "trainer"))
lock_run = partial(lock.lock_run, roles=("monitor", "trainer"))
_MONITOR_BY_HAND = partial(lock_role, role="monitor", by_hand=True)
_TRAINER_BY_HAND = partial(lock_role, role="trainer", by_hand=True)
_MONITOR_OF_A_RUN = partial(lock_role, role="monitor", by_hand=False)


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_MOMENT_S", "_PREDECESSOR_WITHIN_S", "_ORPHANS_WITHIN_S"):
        monkeypatch.setattr(lock, name, 0.0)


@pytest.mark.parametrize(
    ("first", "second", "holder"),
    [
        (lock_run, lock_run, "aclearn train"),
        (lock_run, _MONITOR_BY_HAND, "aclearn train"),
        (lock_run, _MONITOR_OF_A_RUN, None),
        (lock_all, _MONITOR_OF_A_RUN, "aclearn train"),
        (_MONITOR_BY_HAND, lock_run, "the monitor"),
        (_MONITOR_BY_HAND, _MONITOR_BY_HAND, "the monitor"),
        (_MONITOR_BY_HAND, _TRAINER_BY_HAND, None),
        (_MONITOR_OF_A_RUN, lock_run, "the monitor"),
    ],
)
def test_which_writers_may_share_a_run(tmp_path: Path, first, second, holder) -> None:
    with closing(first(tmp_path)):
        for _ in range(2):  # a refusal leaves nothing locked
            if holder is None:
                second(tmp_path).close()
                continue
            with pytest.raises(
                RunFolderError, match=rf"is being written by {holder} \(process {os.getpid()} on"
            ):
                second(tmp_path)
    second(tmp_path).close()


def test_every_role_that_writes_is_named(tmp_path: Path) -> None:
    with (
        closing(_MONITOR_BY_HAND(tmp_path)),
        closing(_TRAINER_BY_HAND(tmp_path)),
        pytest.raises(RunFolderError, match=r"by the monitor \(.*\) and the trainer \(.*\); stop"),
    ):
        lock_run(tmp_path)


def test_a_killed_holder_leaves_no_lock_and_a_living_one_keeps_others_out(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; from aclearn.runs import lock_run\n"
        "lock = lock_run(pathlib.Path(sys.argv[1]))\n"
        "print('locked', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        env=_ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"locked\n"
        with pytest.raises(RunFolderError, match=rf"\(process {owner.pid} on host"):
            lock_run(tmp_path)
        owner.send_signal(signal.SIGKILL)
        assert owner.wait(timeout=DEADLINE_S) == -signal.SIGKILL
    lock_run(tmp_path).close()


def test_neither_a_program_nor_a_forked_process_inherits_a_lock(tmp_path: Path) -> None:
    held = lock_all(tmp_path)
    forked = multiprocessing.get_context("fork").Process(target=signal.pause)
    forked.start()
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=False,
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"up\n"
            held.close()
            lock_all(tmp_path).close()
            assert program.poll() is None and forked.is_alive()
        finally:
            forked.kill()
            forked.join()


def test_a_folder_that_was_moved_aside_is_not_taken_for_the_one_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    really = lock.fcntl.flock

    def moved_first(descriptor: int, how: int) -> None:
        monkeypatch.setattr(lock.fcntl, "flock", really)
        folder.rename(tmp_path / "r.1")
        folder.mkdir()
        really(descriptor, how)

    monkeypatch.setattr(lock.fcntl, "flock", moved_first)
    monkeypatch.setattr(lock, "_MOMENT_S", 60.0)
    with closing(lock_run(folder)):
        assert (folder / ".lock").read_text().startswith("aclearn train")
        lock_run(tmp_path / "r.1").close()
