"""Where files are, and how those of a run are opened: without following symbolic links."""

from __future__ import annotations

import errno
import os
from pathlib import Path


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


def user_cache() -> Path:
    """The user's folder for what can be made again: `$XDG_CACHE_HOME/aclearn` or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aclearn"
