"""`population.json`: the lineage of a population on disk, written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from aclearn.errors import RunFolderError
from aclearn.population.lineage import Lineage
from aclearn.runs import BEST_FOLDER, POPULATION_FILE, write_atomically

_FORMAT: Final = 1


def read_lineage(folder: Path) -> Lineage:
    """The lineage of the population in `folder`.

    Raises:
        RunFolderError: there is no population, or its file cannot be read.
    """
    path = folder / POPULATION_FILE
    try:
        text = path.read_bytes()
    except FileNotFoundError as error:
        what = "is a run" if (folder / "config.yaml").is_file() else "exists"
        found = f"{folder} {what}, and no population" if folder.is_dir() else f"no folder {folder}"
        raise RunFolderError(
            f"there is no {path.name}: {found}; expected the folder of an aclearn evolve"
        ) from error
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read ({error.strerror})") from error
    try:
        document = json.loads(text)
        if document["format"] != _FORMAT:
            raise RunFolderError(
                f"{path} has format {document['format']!r:.20}, expected {_FORMAT}; it was written "
                "by another version of aclearn"
            )
        return Lineage.model_validate_json(json.dumps(document["lineage"]))
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise RunFolderError(
            f"{path} is damaged: {str(error).splitlines()[0]:.200}; expected a file that aclearn "
            "wrote, so restore it from a copy"
        ) from error


def best_folder(population: Path) -> Path:
    """The run folder of the best agent so far: a configuration and one checkpoint."""
    return population / BEST_FOLDER


def member_folder(population: Path, number: int) -> Path:
    """The run folder of a member."""
    return population / f"member-{number}"


def judged_folder(population: Path, number: int) -> Path:
    """Where a member's checkpoint of the last judgement stays, whatever its run removes."""
    return population / "judged" / f"member-{number}"


def write_lineage(folder: Path, lineage: Lineage) -> None:
    """Replace the lineage on disk.

    Raises:
        RunFolderError: it cannot be written; the old one stays.
    """
    document = {"format": _FORMAT, "lineage": lineage.model_dump()}
    path = folder / POPULATION_FILE
    try:
        write_atomically(path, (json.dumps(document, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be written ({error.strerror}); free space or repair the folder, and "
            "continue with --resume"
        ) from error
