"""The invariants find what they are there for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.invariants import check_nothing_learned_twice

_A, _B, _C = ("0123456789abcde" + letter for letter in "abc")


def _logs(folder: Path, **texts: str) -> Path:
    (folder / "logs").mkdir()
    for name, text in texts.items():
        (folder / "logs" / f"trainer-{name[-1]}.log").write_text(text)
    return folder


def _line(*columns: str) -> str:
    return f"level=INFO module=a event=batch_learned columns={','.join(columns)}"


def test_each_column_counts_once_over_all_ranks_and_starts(tmp_path: Path) -> None:
    # a killed trainer has left half a line, which its successor's log continues
    torn = f"{_line(_A)}\n{_line(_B[:9])}time=2026 event=workers\n"
    assert check_nothing_learned_twice(_logs(tmp_path, rank_0=torn, rank_1=_line(_C))) == 2


@pytest.mark.parametrize("rank_1", [_line(_C, _A), _line(_B, _B)])
def test_a_column_in_two_batches_is_found_in_any_log(tmp_path: Path, rank_1: str) -> None:
    folder = _logs(tmp_path, rank_0=f"{_line(_A)}\n", rank_1=rank_1)
    with pytest.raises(AssertionError, match="1 of 2 columns were learned twice"):
        check_nothing_learned_twice(folder)
