from __future__ import annotations

from pathlib import Path

import pytest

from aclearn.launch.log_tail import log_tail

_TRACE = ["Traceback (most recent call last):", "  x", "ValueError: bad"]
_CAUSED = [
    *("Traceback (most recent call last):", "  x", "KeyError: 'a'", ""),
    *("The above exception was the direct cause of the following exception:", ""),
    *("Traceback (most recent call last):", "  y", "RuntimeError: b"),
]
_NOISE = [f"line {n}" for n in range(50)]


@pytest.mark.parametrize(
    ("log", "options", "tail"),
    [
        (["one", "two"], {}, ["one", "two"]),
        (_NOISE, {"lines": 3}, _NOISE[-3:]),
        # the tail reaches back over the last traceback, and over the one that caused it
        (["before", *_TRACE, "after"], {"lines": 1}, [*_TRACE, "after"]),
        ([*_TRACE, "went on", *_CAUSED], {"lines": 1}, _CAUSED),
        (
            [*_TRACE, *_NOISE],
            {"lines": 2, "traceback_lines": 3},
            [*_TRACE, "... 48 lines ...", "line 48", "line 49"],
        ),
        # what stood before the newest start is left out
        ([*_TRACE, "new"], {"start": len("\n".join(_TRACE))}, ["", "new"]),
    ],
    ids=["short", "long", "traceback", "caused", "noise", "start"],
)
def test_the_tail_has_the_last_lines_and_the_last_traceback(
    tmp_path: Path, log: list[str], options: dict[str, int], tail: list[str]
) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(log) + "\n")
    assert log_tail(path, **options) == "\n".join(tail)


def test_a_huge_log_with_broken_bytes_is_read_from_its_end_only_and_a_missing_one_is_empty(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff" * 1_000_000 + b"\nlast\n")
    tail = log_tail(log, lines=2)
    assert tail.endswith("\nlast")
    assert len(tail) <= 65536
    assert log_tail(tmp_path / "none") == ""
