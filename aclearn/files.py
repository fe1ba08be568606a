"""Where files are, how those of a run are opened, and disks that are full."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

#: Errors of a disk on which there may be room again.
FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT)


def open_to_write(path: str | Path, flags: int) -> int:
    """A descriptor of a file, made if missing, to read and write; no symbolic link is followed.

    Args:
        flags: of `os.open`, besides those.

    Raises:
        OSError: it is a link or a folder, may only be read, …
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | flags, 0o644)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        words = "it is a symbolic link, which may lead out of the run; remove the link"
        raise OSError(errno.ELOOP, words, str(path)) from error


def disk_is_full(error: BaseException) -> bool:
    """Whether an error, or a cause of it, is that of a full disk, or has its words."""
    words = tuple(os.strerror(number) for number in FULL_DISK)
    cause: BaseException | None = error
    while cause is not None:
        said = " ".join((str(cause), *getattr(cause, "__notes__", ())))
        if getattr(cause, "errno", None) in FULL_DISK or any(each in said for each in words):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def user_cache() -> Path:
    """The user's folder for what can be made again: `$XDG_CACHE_HOME/aclearn` or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aclearn"
