"""The private directory that holds a run's socket files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from aclearn.launch import StopFlag, parent_is_alive
from aclearn.wire import (
    parse_endpoint,
)

_PREFIX = "aclearn-"


@contextmanager
def socket_directory(stop: StopFlag) -> Iterator[Path]:
    """A private directory for socket files, short enough for the system's limit.

    It is removed at the end, also by the third Ctrl-C: open connections do not need the files.
    """
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
    remove = partial(shutil.rmtree, directory, ignore_errors=True)
    stop.last_acts.append(remove)
    try:
        yield directory
    finally:
        remove()
        stop.last_acts.remove(remove)


def remove_if_orphaned(monitor: str) -> None:
    """At a role's end, remove the directory of its monitor's address if the parent is gone."""
    directory = Path(parse_endpoint(monitor).path).parent
    if directory.name.startswith(_PREFIX) and not parent_is_alive():
        shutil.rmtree(directory, ignore_errors=True)
