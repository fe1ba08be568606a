from __future__ import annotations

import pytest

from aclearn.metrics.formatting import amount, duration, percent, printable


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0:00:00"),
        (59.6, "0:01:00"),
        (3661.0, "1:01:01"),
        (100 * 3600.0, "100:00:00"),
        (-3.0, "0:00:00"),
        (None, "?"),
        (float("inf"), "?"),
        (float("nan"), "?"),
    ],
)
def test_a_duration_reads_as_hours_minutes_seconds(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (7, "7"),
        (4.13, "4.1"),
        (999.4, "999"),
        (999.5, "1.00 k"),
        (2481.3, "2.48 k"),
        (12_345, "12.3 k"),
        (123_456, "123 k"),
        (999_499, "999 k"),
        (999_500, "1.00 M"),
        (1_853_440, "1.85 M"),
        (4e9, "4.00 G"),
        (None, "-"),
        (float("nan"), "-"),
    ],
)
def test_an_amount_keeps_the_digits_that_matter(value: float | None, words: str) -> None:
    assert amount(value) == words


def test_a_share_reads_as_percent() -> None:
    assert percent(0.404) == "40 %"


def test_control_characters_and_line_breaks_do_not_reach_the_terminal() -> None:
    assert printable(" died:\n\x1b[31mred\x1b[0m\a \r\n") == "died:  [31mred [0m"
