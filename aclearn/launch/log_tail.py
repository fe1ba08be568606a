"""The end of a role's log, with its last traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_READ_BYTES = 65536
_LINES, _TRACEBACK_LINES = 20, 80
#: With less free space, a log may be empty because the disk is full.
_LEAST_FREE_BYTES = 4096


def log_ending(log: Path, *, start: int) -> str:
    """The tail of a log under a heading, or why it is empty; see `log_tail`."""
    text = log_tail(log, start=start)
    if not text:
        full = shutil.disk_usage(log.parent).free < _LEAST_FREE_BYTES
        text = f"(empty: no space is left in {log.parent}; free some)" if full else "(empty)"
    return f"the end of its log {log}:\n{text}"


def log_tail(path: Path, *, start: int = 0) -> str:
    """The last twenty lines of a log, including the last traceback, 80 lines of it if further up.

    Reads at most 64 KiB; undecodable bytes are replaced.

    Args:
        start: byte offset of the newest incarnation's first line.

    Returns:
        The text without a final newline; empty if the log is empty or cannot be read.
    """
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(start, size - _READ_BYTES, 0))
            text = log.read(_READ_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
    all_lines = text.rstrip().splitlines()
    tail_at = max(0, len(all_lines) - _LINES)
    traceback_at = _last_traceback(all_lines)
    if traceback_at is None or traceback_at >= tail_at:
        return "\n".join(all_lines[tail_at:])
    shown_until = min(tail_at, traceback_at + _TRACEBACK_LINES)
    gap = [f"... {tail_at - shown_until} lines ..."] if shown_until < tail_at else []
    return "\n".join([*all_lines[traceback_at:shown_until], *gap, *all_lines[tail_at:]])


def _last_traceback(lines: list[str]) -> int | None:
    """Index of the first line of the last traceback, or of the one that caused it."""
    starts = [index for index, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    if not starts:
        return None
    first = starts.pop()
    while starts and any(line in _CHAINED for line in lines[max(0, first - 2) : first]):
        first = starts.pop()
    return first
