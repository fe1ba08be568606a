from __future__ import annotations

from pathlib import Path

import pytest

from aclearn.launch.log_tail import log_tail

_TRACE = ["Traceback (most recent call last):", *["  x"] * 100, "ValueError: bad"]
_CAUSED = [
    *("Traceback (most recent call last):", "  x", "KeyError: 'a'", ""),
    *("The above exception was the direct cause of the following exception:", ""),
    *("Traceback (most recent call last):", "  y", "RuntimeError: b"),
]
_NOISE = [f"line {n}" for n in range(50)]


@pytest.mark.parametrize(
    ("log", "tail"),
    [
        (["one", "two"], ["one", "two"]),
        (_NOISE, _NOISE[-20:]),
        # the tail reaches back over the last traceback, and over the one that caused it
        (["before", *_TRACE[:30], "after"], [*_TRACE[:30], "after"]),
        ([*_TRACE, "went on", *_CAUSED, *_NOISE[:18]], [*_CAUSED, *_NOISE[:18]]),
        ([*_TRACE, *_NOISE], [*_TRACE[:80], "... 52 lines ...", *_NOISE[-20:]]),
    ],
    ids=["short", "long", "traceback", "caused", "noise"],
)
def test_the_tail_has_the_last_lines_and_the_last_traceback(
    tmp_path: Path, log: list[str], tail: list[str]
) -> None:
    path = tmp_path / "log"
    before = "Traceback (most recent call last):\nof an earlier start\n"
    path.write_text(before + "\n".join(log) + "\n")
    assert log_tail(path, start=len(before)) == "\n".join(tail)


def test_a_huge_log_with_broken_bytes_is_read_from_its_end_only_and_a_missing_one_is_empty(
    tmp_path: Path,
) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff" * 1_000_000 + b"\nlast\n")
    tail = log_tail(log)
    assert tail.endswith("\nlast")
    assert len(tail) <= 65536
    assert log_tail(tmp_path / "none") == ""
