"""Runs without a name of their own: `<experiment>-<number>`, numbered from 1."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from aclearn.errors import RunFolderTaken
from aclearn.runs.run_folder import RunFolder

_NUMBER = re.compile(r"[1-9][0-9]*")


def numbered_runs(dir: str | Path, experiment: str) -> list[Path]:
    """The folders of the experiment's numbered runs, the highest number first."""
    return sorted(_taken(Path(dir).absolute(), experiment), key=_number_of, reverse=True)


def next_name(dir: str | Path, experiment: str) -> str:
    """The name of the experiment's next run: one above the highest number in `dir`.

    A run that has learned nothing, the newest one, gives its number to the next.
    """
    newest = next(iter(numbered_runs(dir, experiment)), None)
    if newest is None:
        return f"{experiment}-1"
    failed = (newest / "config.yaml").is_file() and not RunFolder.open(newest).has_learned
    return newest.name if failed else f"{experiment}-{_number_of(newest) + 1}"


def create_next(dir: str | Path, experiment: str, create: Callable[[str], RunFolder]) -> RunFolder:
    """The folder of the experiment's next run, made by `create` from its name.

    Several processes may call this at once: each gets a number of its own.

    Raises:
        RunFolderError: as `RunFolder.create`, except that a number which is taken is passed over.
    """
    name = next_name(dir, experiment)
    while True:
        try:
            return create(name)
        except RunFolderTaken:
            name = f"{experiment}-{int(name.rpartition('-')[2]) + 1}"


def make_next(dir: str | Path, experiment: str) -> Path:
    """A new empty folder for several runs, under the experiment's next number.

    Several processes may call this at once: each gets a number of its own.

    Raises:
        OSError: it cannot be made.
    """
    Path(dir).mkdir(parents=True, exist_ok=True)
    while True:
        newest = next(iter(numbered_runs(dir, experiment)), None)
        number = 1 if newest is None else _number_of(newest) + 1
        folder = Path(dir) / f"{experiment}-{number}"
        with suppress(FileExistsError):  # another command was faster
            folder.mkdir()
            return folder


def _taken(dir: Path, experiment: str) -> list[Path]:
    if not dir.is_dir():
        return []
    start = f"{experiment}-"
    return [
        path
        for path in dir.iterdir()
        if path.name.startswith(start) and _NUMBER.fullmatch(path.name.removeprefix(start))
    ]


def _number_of(path: Path) -> int:
    return int(path.name.rpartition("-")[2])
