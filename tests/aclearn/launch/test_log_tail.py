from __future__ import annotations

from pathlib import Path

from aclearn.launch import log_tail


def _write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_short_log_is_shown_whole(tmp_path: Path) -> None:
    assert log_tail(_write(tmp_path / "log", "one", "two")) == "one\ntwo"


def test_only_the_last_lines_of_a_long_log_are_shown(tmp_path: Path) -> None:
    log = _write(tmp_path / "log", *(f"line {n}" for n in range(100)))
    assert log_tail(log, lines=3) == "line 97\nline 98\nline 99"


def test_the_tail_reaches_back_over_the_last_traceback(tmp_path: Path) -> None:
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: bad"]
    log = _write(tmp_path / "log", "before", *trace, "after 1", "after 2")
    assert log_tail(log, lines=1) == "\n".join([*trace, "after 1", "after 2"])


def test_a_traceback_is_shown_with_the_exception_that_caused_it(tmp_path: Path) -> None:
    cause = ["Traceback (most recent call last):", "  x", "KeyError: 'a'", ""]
    link = "The above exception was the direct cause of the following exception:"
    effect = ["", "Traceback (most recent call last):", "  y", "RuntimeError: b"]
    older = ["Traceback (most recent call last):", "  z", "OSError: older", "went on"]
    log = _write(tmp_path / "log", *older, *cause, link, *effect)
    assert log_tail(log, lines=1) == "\n".join([*cause, link, *effect])


def test_much_noise_after_a_traceback_is_cut_in_the_middle(tmp_path: Path) -> None:
    trace = ["Traceback (most recent call last):", "  x", "ValueError: bad"]
    log = _write(tmp_path / "log", *trace, *(f"noise {n}" for n in range(50)))
    expected = [*trace, "... 48 lines ...", "noise 48", "noise 49"]
    assert log_tail(log, lines=2, traceback_lines=3) == "\n".join(expected)


def test_what_stood_before_the_start_offset_is_left_out(tmp_path: Path) -> None:
    log = _write(tmp_path / "log", "Traceback (most recent call last):", "old", "new")
    offset = len("Traceback (most recent call last):\nold\n")
    assert log_tail(log, start=offset) == "new"


def test_a_huge_log_with_broken_bytes_is_read_from_its_end_only(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff" * 1_000_000 + b"\nlast\n")
    tail = log_tail(log, lines=2)
    assert tail.endswith("\nlast")
    assert len(tail) <= 65536


def test_a_missing_log_has_an_empty_tail(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none") == ""
