"""The end of a text file."""

from __future__ import annotations

from pathlib import Path


def tail(path: Path, most_bytes: int) -> str:
    """The last bytes of a file as text; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most_bytes))
            return file.read(most_bytes).decode(errors="replace")
    except OSError:
        return ""
