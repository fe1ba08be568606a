"""Private directories are removed, also those of killed processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aclearn.errors import EndpointError
from aclearn.launch import PARENT_PID_VARIABLE, StopFlag
from aclearn.wire.endpoints import IPC_PATH_MAX_BYTES
from services.start.temporary_directory import (
    PROFILE,
    remove_if_orphaned,
    socket_directory,
    temporary_directory,
)
from tests.support.waiting import DEADLINE_S

_HOLDS = """
import sys, time
from aclearn.launch import StopFlag
from services.start.temporary_directory import temporary_directory
with temporary_directory(sys.argv[1], StopFlag()) as directory:
    (directory / "a.sock").touch()
    print(directory, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary directories of this process and its children.

    Its path is short: that of `tmp_path` grows with the number of pytest's runs, and sockets allow
    no more than 72 bytes.
    """
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setenv("TMPDIR", directory)
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(directory)


def _aged(directory: Path) -> Path:
    long_ago = time.time() - 3600.0
    os.utime(directory, (long_ago, long_ago))
    return directory


def test_it_is_private_short_and_removed_at_the_end(temporary: Path) -> None:
    stop = StopFlag()
    with socket_directory(stop) as directory:
        assert directory.parent == temporary and len(directory.name) <= 20
        assert directory.stat().st_mode & 0o777 == 0o700
        (directory / "a.sock").touch()
        [act] = stop.last_acts
        act()  # as the third Ctrl-C
        assert not directory.exists()
    assert list(temporary.iterdir()) == [] and stop.last_acts == []


@pytest.mark.parametrize("use", ["run", PROFILE])
def test_the_directory_of_a_killed_process_is_removed_by_the_next_one(
    temporary: Path, use: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDS, use], stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None
            held = _aged(Path(holder.stdout.readline().strip()))
            with socket_directory(StopFlag()):
                assert held.exists(), "its process lives"
            _aged(held)
        finally:
            holder.kill()
            holder.wait(DEADLINE_S)
    with temporary_directory(PROFILE, StopFlag()):
        assert not held.exists()


def test_other_directories_stay(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir()
    young = temporary / "aclearn-run-young"  # may be about to be locked
    young.mkdir()
    others = [temporary / name for name in ("aclearn-mine", "runs", "aclearn-profile.txt")]
    for other in others:
        other.mkdir()
        _aged(other)
    link = temporary / "aclearn-run-link"
    link.symlink_to(temporary / "elsewhere")
    with socket_directory(StopFlag()):
        pass
    assert sorted(temporary.iterdir()) == sorted([temporary / "elsewhere", young, link, *others])


def test_a_role_removes_it_only_when_its_parent_is_gone(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket_directory(StopFlag()) as directory:
        address = f"ipc://{directory}/monitor.sock"
        monkeypatch.setenv(PARENT_PID_VARIABLE, str(os.getppid()))
        remove_if_orphaned(address)
        assert directory.exists()
        monkeypatch.setenv(PARENT_PID_VARIABLE, "1")
        elsewhere = temporary / "sockets"
        elsewhere.mkdir()
        for other in (f"ipc://{elsewhere}/monitor.sock", "tcp://127.0.0.1:5555"):
            remove_if_orphaned(other)
        assert directory.exists() and elsewhere.exists()
        remove_if_orphaned(address)
        assert not directory.exists()


@pytest.mark.parametrize("spare", [0, 1])
def test_a_long_path_of_temporary_files_is_named(spare, monkeypatch) -> None:
    # "/aclearn-run-" and 8 characters, "/" and the longest file's name: 8 characters and ".sock"
    most = IPC_PATH_MAX_BYTES - len("/aclearn-run-12345678/12345678.sock")
    with tempfile.TemporaryDirectory(prefix="s") as short:  # pytest's own paths are long
        path = Path(short) / ("x" * (most + spare - len(short) - 1))
        path.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(path))
        if spare:
            words = f"TMPDIR: .* {most + 1} bytes, .* allows {most}; set"
            with pytest.raises(EndpointError, match=words), socket_directory(StopFlag()):
                pass
        else:
            with socket_directory(StopFlag()) as directory:
                assert len(str(directory / "12345678.sock")) == IPC_PATH_MAX_BYTES
        assert list(path.iterdir()) == []
        monkeypatch.undo()
