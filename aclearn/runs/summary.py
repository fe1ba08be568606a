"""The result of a run: the last of each metric, the duration, the reason of the end, the seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aclearn.errors import RunFolderError
from aclearn.runs.atomic_file import write_atomically


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Write the summary atomically; an older one is replaced.

    Raises:
        RunFolderError: it cannot be written, or a value is NaN or not JSON.
    """
    try:
        write_atomically(path, (json.dumps(summary, indent=2, allow_nan=False) + "\n").encode())
    except (OSError, TypeError, ValueError) as exc:
        raise RunFolderError(f"the summary {path} cannot be written ({exc})") from exc


def read_summary(path: Path) -> dict[str, Any] | None:
    """The summary at `path`; None if the run has not ended.

    Raises:
        RunFolderError: the file exists and cannot be read.
    """
    try:
        summary = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise RunFolderError(f"the summary {path} cannot be read ({exc})") from exc
    if not isinstance(summary, dict):
        raise RunFolderError(f"the summary {path} is not a JSON object")
    return summary
