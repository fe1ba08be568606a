"""Notes for the user from metrics lines."""

from __future__ import annotations

from aclearn.metrics import LineNotes


def test_a_rate_of_zero_is_told_once_and_again_after_another_rate() -> None:
    note = LineNotes()
    rates = [None, 1e-3, 1e-9, 0.0, 0.0, 1e-4, 0.0]
    lines = [{} if rate is None else {"learning_rate": rate} for rate in rates]
    told = [note.observe(line) for line in lines]
    assert [len(texts) for texts in told] == [0, 0, 0, 1, 0, 0, 1]
    assert "larger optimiser.schedule_steps" in told[3][0]


def test_a_rate_of_zero_of_one_of_several_policies_is_told_too() -> None:
    note = LineNotes()
    told = [
        note.observe(
            {"policies": {"red": {"learning_rate": 1e-3}, "blue": {"learning_rate": rate}}}
        )
        for rate in (1e-3, 0.0, 0.0)
    ]
    assert [len(texts) for texts in told] == [0, 1, 0]
