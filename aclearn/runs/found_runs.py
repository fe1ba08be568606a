"""The runs in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

#: Either of these files makes a folder a run.
_FILES = ("config.yaml", "metrics.jsonl")
#: This one makes it a population, whose members are runs in it.
POPULATION_FILE = "population.json"
#: This one makes it a publication: a run folder with the weights of one checkpoint.
PUBLICATION_FILE = "publication.json"
#: The run folder in a population that has its best agent.
BEST_FOLDER = "best"
#: Files of a sweep, whose trials are runs in its folder: all trials, and the best configuration.
SWEEP_FILE, SWEEP_BEST = "sweep.json", "best.yaml"


def runs_in(path: Path) -> list[Path]:
    """The run folders at a path: itself, or those in it, or in folders in it, as of `--seeds`.

    In the order of their names, numbers by their value; empty if there are none.
    """
    if _is_run(path):
        return [path]
    found = list[Path]()
    for folder in _folders(path):
        found += [folder] if _is_run(folder) else filter(_is_run, _folders(folder))
    return found


def is_population(path: Path) -> bool:
    """Whether it is the folder of an `aclearn evolve`."""
    return os.path.isfile(path / POPULATION_FILE)


def is_publication(path: Path) -> bool:
    """Whether it is the folder of an `aclearn publish`."""
    return os.path.isfile(path / PUBLICATION_FILE)


def _is_run(path: Path) -> bool:
    # Path.is_file raises PermissionError in a folder that others may not read
    return any(os.path.isfile(path / name) for name in _FILES) and not is_population(path)


def _folders(path: Path) -> Iterable[Path]:
    if not path.is_dir() or not os.access(path, os.R_OK | os.X_OK):
        return []
    # a name with a dot in front is a folder that is still being written
    found = (each for each in path.iterdir() if each.is_dir() and not each.name.startswith("."))
    if is_population(path):  # its best agent is a copy of a member
        found = (each for each in found if each.name != BEST_FOLDER)
    return sorted(found, key=_by_numbers)


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """A key that puts seed-2 before seed-10."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part) if part.isdecimal() else -1, part) for part in parts]
