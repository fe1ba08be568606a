"""The generations of a run's trainers: each is claimed on disk before it is used."""

from __future__ import annotations

import json
from pathlib import Path

from aclearn.errors import CheckpointError
from aclearn.runs.atomic_file import write_atomically
from aclearn.runs.checkpoint import list_checkpoints
from aclearn.runs.run_folder import RunFolder


def claim_generation(folder: RunFolder) -> int:
    """A generation that no trainer of the run has used; it is on disk before this returns.

    Actors order all weights by it. Under a generation that was used before, which the newest whole
    checkpoint may not know of, they would take none.

    Args:
        folder: of the run; the caller is its only trainer.

    Raises:
        CheckpointError: the claims cannot be read or written; without one nothing may be published.
    """
    path = folder.generation_path
    try:
        claimed = _as_generation(json.loads(path.read_bytes()))
    except FileNotFoundError:
        # none yet, or a copy of the run without it
        claimed = max(
            (_generation_in(each) for each in list_checkpoints(folder.checkpoints_dir)), default=-1
        )
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}); expected the number of this run's last trainer. "
            "Remove it to continue with the number after those in the checkpoints, once no actor "
            "of the run lives"
        ) from error
    try:
        write_atomically(path, f"{claimed + 1}\n".encode())
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be written ({error.strerror}): no weights may be published; free "
            "space or repair the folder"
        ) from error
    return claimed + 1


def _as_generation(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _generation_in(checkpoint: Path) -> int:
    """The generation in a checkpoint's JSON, verified or not; -1 if it cannot be read."""
    try:
        return _as_generation(json.loads(checkpoint.read_bytes())["body"]["state"]["generation"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return -1
