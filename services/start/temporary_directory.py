"""Private temporary directories: that of a run's socket files, and others."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from aclearn.errors import EndpointError
from aclearn.launch import StopFlag, parent_is_alive
from aclearn.wire import parse_endpoint
from aclearn.wire.endpoints import IPC_PATH_MAX_BYTES

_PREFIX: Final = "aclearn-"
#: What each directory is for, which is in its name.
_SOCKETS: Final = "run"
PROFILE: Final = "profile"
#: Files of a process on a node of a Ray cluster.
RAY: Final = "ray"
#: Most bytes of a socket file's path below the folder of temporary files.
_SOCKET_NAME_BYTES: Final = len(f"/{_PREFIX}{_SOCKETS}-12345678/12345678.sock")
#: Least age of a directory without an owner: a younger one may be about to be locked.
_ABANDONED_AFTER_S: Final = 60.0


@contextmanager
def temporary_directory(use: str, stop: StopFlag) -> Iterator[Path]:
    """A private directory, removed at the end, also by the third Ctrl-C.

    If this process is killed, the next one that makes a directory removes it: the kernel releases
    its lock.
    """
    _remove_abandoned()
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{use}-"))
    remove = partial(shutil.rmtree, directory, ignore_errors=True)
    stop.last_acts.append(remove)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield directory
    finally:
        remove()
        os.close(lock)
        stop.last_acts.remove(remove)


def socket_directory(stop: StopFlag) -> AbstractContextManager[Path]:
    """A directory for socket files, short enough for the system's limit.

    Open connections do not need the files.

    Raises:
        EndpointError: the folder of temporary files (TMPDIR) has too long a path for sockets.
    """
    parent, most = tempfile.gettempdir(), IPC_PATH_MAX_BYTES - _SOCKET_NAME_BYTES
    if (size := len(os.fsencode(parent))) > most:
        raise EndpointError(
            f"TMPDIR: the sockets of a run are files in {parent}, whose path has {size} bytes, and "
            f"this system allows {most}; set TMPDIR to a folder with a shorter path, e.g. "
            "TMPDIR=/tmp"
        )
    return temporary_directory(_SOCKETS, stop)


def remove_if_orphaned(monitor: str) -> None:
    """At a role's end, remove the directory of its monitor's address if the parent is gone."""
    directory = Path(parse_endpoint(monitor).path).parent
    if directory.name.startswith(f"{_PREFIX}{_SOCKETS}-") and not parent_is_alive():
        shutil.rmtree(directory, ignore_errors=True)


def _remove_abandoned() -> None:
    """Remove the directories of killed processes."""
    for use in (_SOCKETS, PROFILE, RAY):
        for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{use}-*"):
            with suppress(OSError):  # it is in use, another user's, or just removed
                lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    found = os.fstat(lock)
                    old = time.time() - found.st_mtime > _ABANDONED_AFTER_S
                    if found.st_uid == os.geteuid() and old:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(directory)
                finally:
                    os.close(lock)
