"""Room on the disk for a run's last words, kept from its start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from aclearn.runs.atomic_file import write_atomically

RESERVED_BYTES: Final = 100_000
"""Enough for the last metrics line, what goes with it, and the summary."""


def reserve(folder: Path) -> None:
    """Keep room in the run folder until `release`; does nothing where it is kept already.

    Raises:
        OSError: the disk is full, or refuses.
    """
    path = _path(folder)
    if not path.exists():
        # no zeros: a file system that compresses would keep no room for them
        write_atomically(path, os.urandom(RESERVED_BYTES))


def release(folder: Path) -> None:
    """Give the room back, for what is written next.

    Raises:
        OSError: the disk refuses.
    """
    _path(folder).unlink(missing_ok=True)


def _path(folder: Path) -> Path:
    return folder / ".reserved"
