"""Locks on a run folder: one run, one writer of each file.

`.lock` is the run's: `aclearn train` holds it exclusively, roles started by hand share it.
`.lock-<role>` is held by the process that writes that role's files. The kernel releases a lock at
its holder's end; each file names the holder for messages only.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from aclearn.errors import RunFolderError, RunFolderTaken
from aclearn.files import open_to_write
from aclearn.runs.atomic_file import TEMPORARY_SUFFIX

_RUN: Final = ".lock"
_LOOK_EVERY_S: Final = 0.05
#: Seconds to wait for a refused process, which holds the locks shortly to read them.
_MOMENT_S: Final = 0.5
#: Seconds that a restarted role waits for its predecessor, which may still be saving.
_PREDECESSOR_WITHIN_S: Final = 3.0
#: Seconds for roles whose parent was killed to end; see `die_with_parent`.
_ORPHANS_WITHIN_S: Final = 10.0
_MOST_WORDS_BYTES: Final = 256

_held: set[int] = set()


def _close_in_child() -> None:
    """Close the locks in a forked child, which could hold them longer than their owner."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_close_in_child)


class FolderLock:
    """A process's locks on a run folder, until `close` or its end.

    Child processes do not inherit them.

    Args:
        wanted: for each lock: the name of its file; the name of an exclusive holder, for messages,
            or None to share it; seconds to wait for another holder.

    Raises:
        RunFolderTaken: another process holds one of them.
        RunFolderError: a disk error.
    """

    def __init__(self, folder: Path, *wanted: tuple[str, str | None, float]) -> None:
        self._folder = folder
        self._descriptors: dict[str, int] = {}
        try:
            for name, holder, within_s in wanted:
                self._take(name, holder, within_s)
        except RunFolderError:
            self.close()
            raise

    def _take(self, name: str, holder: str | None, within_s: float) -> None:
        path = self._folder / name
        deadline = time.monotonic() + within_s
        try:
            while (descriptor := _try_lock(path, shared=holder is None)) is None:
                if time.monotonic() > deadline:
                    raise RunFolderTaken(self._refusal())
                time.sleep(_LOOK_EVERY_S)
        except OSError as exc:
            raise RunFolderError(
                f"the run folder {self._folder} cannot be locked ({exc.strerror})"
            ) from exc
        _held.add(descriptor)
        self._descriptors[name] = descriptor
        if holder is not None:
            _write_holder(descriptor, holder)

    def release(self, name: str) -> None:
        """Release one lock."""
        descriptor = self._descriptors.pop(name)
        _held.discard(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        """Release all locks; closing twice has no effect."""
        for name in list(self._descriptors):
            self.release(name)

    def _refusal(self) -> str:
        holders = " and ".join(_holders(self._folder, without=self._descriptors))
        return (
            f"the run folder {self._folder} is being written by {holders or 'another process'}; "
            "stop that first, or start another run under another run.name"
        )


def lock_all(folder: Path, roles: Sequence[str] = ()) -> FolderLock:
    """All locks of a run folder, for a process that writes all its files.

    Waits for roles of an earlier run to end.

    Raises:
        RunFolderError: another process writes there, or a disk error.
    """
    wanted = [(_of(role), "aclearn train", _ORPHANS_WITHIN_S) for role in roles]
    return FolderLock(folder, (_RUN, "aclearn train", _MOMENT_S), *wanted)


def lock_run(folder: Path, roles: Sequence[str] = ()) -> FolderLock:
    """The lock of `aclearn train`, once every role's is free; the roles then take their own."""
    lock = lock_all(folder, roles)
    for role in roles:
        lock.release(_of(role))
    return lock


def lock_role(folder: Path, role: str, *, by_hand: bool) -> FolderLock:
    """The lock of one writing role; it waits a few seconds for a predecessor's end.

    Args:
        by_hand: whether it was started without `aclearn train`, which then must not run.

    Raises:
        RunFolderError: another process has this role or the whole run, or a disk error.
    """
    run = [(_RUN, None, _MOMENT_S)] if by_hand else []
    return FolderLock(folder, *run, (_of(role), f"the {role}", _PREDECESSOR_WITHIN_S))


def lock_new(
    folder: Path, wanted: tuple[str, str, float], *, first: Container[str] = ()
) -> FolderLock | None:
    """The lock of a new folder, which is made; None if there is something in it already.

    One that a kill has left during its making is taken: it has locks, temporary files and `first`.

    Args:
        first: names of the files that are written before the one that makes it complete.

    Raises:
        RunFolderError: another process makes it, or a disk error.
        OSError: it cannot be made.
    """
    if folder.exists() and not _is_unfinished(folder, first):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder, wanted)
    if _is_unfinished(folder, first):
        return lock
    lock.close()  # another command was faster
    return None


def _is_unfinished(folder: Path, first: Container[str]) -> bool:
    return folder.is_dir() and all(
        path.name.startswith(_RUN) or path.suffix == TEMPORARY_SUFFIX or path.name in first
        for path in folder.iterdir()
    )


def is_locked(folder: Path) -> bool:
    """Whether a process writes the run in this folder, which is only read."""
    for path in folder.glob(f"{_RUN}*"):
        with suppress(OSError):  # removed meanwhile, or of another user
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if path.name == _RUN:  # roles started one by one share it
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
    return False


def _of(role: str) -> str:
    return f"{_RUN}-{role}"


def _try_lock(path: Path, *, shared: bool) -> int | None:
    """A descriptor that holds the lock; None if another process does."""
    descriptor = open_to_write(path, 0)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        # the folder may have been moved since the file was opened
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _write_holder(descriptor: int, holder: str) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    words = f"{holder} (process {os.getpid()} on host {socket.gethostname()}, since {since})"
    # on a full disk the lock still holds, but the message names no holder
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, words.encode()[:_MOST_WORDS_BYTES], 0)


def _holders(folder: Path, *, without: Container[str]) -> list[str]:
    """`aclearn train`, or else the roles that write; without our own locks (`without`)."""
    found = []
    for name in (_RUN, *sorted(path.name for path in folder.glob(_of("*")))):
        if name in without:
            continue
        descriptor = open_to_write(folder / name, 0)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            words = os.pread(descriptor, _MOST_WORDS_BYTES, 0).decode(errors="replace")
            if name == _RUN and words:
                return [words]
            found.append(words)
        finally:
            os.close(descriptor)
    return [words for words in found if words]
