"""A disk that can be full: a small file system, or one that says so."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

#: Of the folders of mounted disks; the id of the process that mounted one follows.
_PREFIX = "aclearn-disk-"
#: Imported by every Python of the test's folder: writing fails while a file is there.
_SAYS_SO = """
import builtins, errno, os, stat

FULL = os.path.join(os.path.dirname(__file__), "disk-is-full")
_open, _write, _fsync = os.open, os.write, os.fsync


def _refuse():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full():
    return os.path.exists(FULL)


def open_(path, flags, *rest, **more):
    if flags & (os.O_CREAT | os.O_TRUNC) and full():
        _refuse()
    return _open(path, flags, *rest, **more)


def write(descriptor, data):
    if stat.S_ISREG(os.fstat(descriptor).st_mode) and full():
        _refuse()
    return _write(descriptor, data)


def fsync(descriptor):
    if full():
        _refuse()
    return _fsync(descriptor)


os.open, os.write, os.fsync = open_, write, fsync
"""


class Disk:
    """A small file system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self, *, leave: int = 0) -> None:
        """Use all space except `leave` bytes, including space freed meanwhile."""
        with self._filler.open("ab", buffering=0) as filler:
            while (free := os.statvfs(self.path).f_bavail * 4096) > leave:
                try:
                    filler.write(bytes(min(free - leave, 1 << 20)))
                except OSError:
                    return

    def free(self) -> None:
        """Free all of it."""
        self._filler.unlink()


class InjectedDisk(Disk):
    """A folder whose files cannot be written while it is full, where nothing can be mounted.

    Args:
        modules: a folder of the Python path of the processes that write.
    """

    def __init__(self, path: Path, modules: Path) -> None:
        super().__init__(path)
        self._filler = modules / "disk-is-full"
        (modules / "sitecustomize.py").write_text(_SAYS_SO)

    def fill(self, *, leave: int = 0) -> None:
        self._filler.touch()


@contextmanager
def mounted_disk(size: str) -> Iterator[Disk | str]:
    """A disk of this size ("4m"), mounted for the test; or why none can be mounted here.

    It is outside of pytest's folders, which pytest could not remove while it is mounted. What a
    killed test has left mounted is unmounted here.
    """
    _unmount_leftovers()
    path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError:
        path.rmdir()
        yield "there is no command mount"
        return
    if mounted.returncode != 0:
        path.rmdir()
        yield mounted.stderr.strip()
        return
    try:
        yield Disk(path)
    finally:
        _unmount(path)


def _unmount_leftovers() -> None:
    """Remove the disks of processes that have ended."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if not psutil.pid_exists(int(path.name.removeprefix(_PREFIX).partition("-")[0])):
            # another test may do the same just now
            with contextlib.suppress(subprocess.CalledProcessError, FileNotFoundError):
                _unmount(path)


def _unmount(path: Path) -> None:
    if path.is_mount():
        subprocess.run(["umount", "--lazy", str(path)], check=True)
    path.rmdir()
