"""Sweeps and populations of a folder: what their files say, for the page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from aclearn.errors import RunFolderError
from aclearn.population.file import read_lineage
from aclearn.runs import BEST_FOLDER, POPULATION_FILE, SWEEP_BEST, SWEEP_FILE
from aclearn.views.population_panels import read_panels

#: File → kind of the search that writes it.
_KINDS: Final = {SWEEP_FILE: "sweep", POPULATION_FILE: "population"}
#: A longer file is none of ours; 100 000 trials have about so many bytes.
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_YAML: Final = 256 * 1024
_FORMAT: Final = 1


class Search(NamedTuple):
    """A sweep or a population.

    Attributes:
        id: its path from the folder of runs.
        kind: "sweep" or "population".
        changed_ns: when its file was written.
    """

    id: str
    kind: str
    path: Path
    changed_ns: int

    def row(self) -> dict[str, Any]:
        """Its entry in the list of searches; JSON-able."""
        return {"id": self.id, "kind": self.kind, "changed": str(self.changed_ns)}


def searches_in(runs_dir: Path) -> list[Search]:
    """The searches at a path: itself, or those in it."""
    return list(_found(runs_dir))


def _found(runs_dir: Path) -> Iterator[Search]:
    if not runs_dir.is_dir():
        return
    for path in (runs_dir, *sorted(each for each in runs_dir.iterdir() if each.is_dir())):
        for name, kind in _KINDS.items():
            try:
                changed_ns = (path / name).stat().st_mtime_ns
            except OSError:  # most folders are no search
                continue
            yield Search(path.name, kind, path, changed_ns)


def search_view(search: Search, *, inside: bool) -> dict[str, Any]:
    """What the page shows of a search; JSON-able.

    Args:
        inside: whether the folder of the page has it, so that ids of its runs begin with its own.

    Raises:
        RunFolderError: its file cannot be read, or is damaged.
    """
    prefix = f"{search.id}/" if inside else ""
    read = _sweep if search.kind == "sweep" else _population
    return {**search.row(), **read(search.path, prefix)}


def _sweep(folder: Path, prefix: str) -> dict[str, Any]:
    path = folder / SWEEP_FILE
    try:
        document = json.loads(_text(path, _MOST_BYTES), parse_constant=lambda name: None)
        if document["format"] != _FORMAT:
            raise RunFolderError(
                f"{path} has format {document['format']!r:.20}, expected {_FORMAT}; it was written "
                "by another version of aclearn"
            )
        trials = [_trial(each, prefix) for each in document["trials"]]
        return {
            "config": str(document["config"]),
            "fitness": str(document["fitness"]),
            "keys": [_key(name, each) for name, each in document["search"].items()],
            "trials": trials,
            "best": document["best"],
            "importance": sorted(
                ((str(key), float(share)) for key, share in document["importance"].items()),
                key=lambda each: -each[1],
            ),
            **_best(folder),
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFolderError(
            f"{path} is damaged ({type(error).__name__}: {error!s:.100}); expected a file that "
            "aclearn sweep wrote"
        ) from error


def _trial(trial: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    fitness = trial["fitness"]
    return {
        "number": int(trial["number"]),
        "state": str(trial["state"]),
        "values": dict(trial["values"]),
        "fitness": fitness if isinstance(fitness, int | float) and math.isfinite(fitness) else None,
        "runs": [f"{prefix}{name}" for name in trial["runs"]],
        "reason": str(trial["reason"]),
    }


def _key(name: str, search: Mapping[str, Any]) -> dict[str, Any]:
    """The axis of a key: its scale, and its ends or choices."""
    [(kind, values)] = search.items()
    if kind == "choices":
        return {"name": name, "choices": list(values)}
    low, high = (float(each) for each in values)
    return {"name": name, "log": kind == "log", "ends": [low, high]}


def _population(folder: Path, prefix: str) -> dict[str, Any]:
    lineage = read_lineage(folder)
    best = lineage.best
    return {
        "panels": [asdict(panel) for panel in read_panels(folder)],
        "best": None if best is None else best.model_dump(include={"round", "member", "fitness"}),
        "members": [
            {
                "run": f"{prefix}member-{each.number}",
                "status": each.status,
                "fitness": each.fitness,
                "values": each.values,
                "detail": each.detail,
            }
            for each in (lineage.judged or lineage.now).members
        ],
        **_best(folder / BEST_FOLDER, "config.yaml"),
    }


def _best(folder: Path, name: str = SWEEP_BEST) -> dict[str, Any]:
    """The best configuration and the command that trains from it; None before there is one."""
    path = folder / name
    try:
        text = _text(path, _MOST_YAML)
    except RunFolderError:
        return {"yaml": None, "command": None}
    return {"yaml": text, "command": f"aclearn train {path}"}


def _text(path: Path, most_bytes: int) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(most_bytes + 1)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read ({error.strerror})") from error
    if len(text) > most_bytes:
        raise RunFolderError(f"{path} has more than {most_bytes} bytes; it is no file of ours")
    return text.decode(errors="replace")
