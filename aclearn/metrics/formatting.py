"""Numbers as text for users."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def duration(seconds: float | None) -> str:
    """Hours, minutes and seconds as "1:02:03"; "?" if None or not finite."""
    if seconds is None or not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def amount(value: float | None) -> str:
    """A count or a rate with three significant digits: "950", "12.3 k", "1.25 M"; "-" for None."""
    if value is None or not math.isfinite(value):
        return "-"
    # Each border is where rounding to three digits would show 1000 of the smaller unit.
    for border, unit, name in ((999.5e6, 1e9, " G"), (999.5e3, 1e6, " M"), (999.5, 1e3, " k")):
        if abs(value) >= border:
            digits = value / unit
            return f"{digits:.{max(0, 3 - len(str(int(abs(digits)))))}f}{name}"
    if float(value).is_integer() or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}"


def score(value: float) -> str:
    """A return in at most eight characters, with up to two decimals."""
    return f"{value:.2f}" if abs(value) < 1e4 else amount(value)


def evaluated(line: Mapping[str, Any], plus_minus: str = " ± ") -> str | None:
    """The newest mean return of an evaluator with its standard error; None before the first."""
    mean, error = line.get("evaluator_return_mean"), line.get("evaluator_return_standard_error")
    if mean is None or error is None:
        return None
    return f"{score(mean)}{plus_minus}{error:.2g}"


def returns_of_policies(line: Mapping[str, Any]) -> str | None:
    """The mean return of each of several policies, "tagger 3.10, runner -2.00"; None of one."""
    parts = line.get("policies") or {}
    means = {name: part.get("return_mean_100") for name, part in parts.items()}
    words = [f"{name} {'-' if mean is None else score(mean)}" for name, mean in means.items()]
    return ", ".join(words) or None


def percent(share: float) -> str:
    """A share between 0 and 1 as "40 %"."""
    return f"{round(100 * share)} %"


def printable(text: str) -> str:
    """The text on one line, without control characters: fit for any terminal or log."""
    return "".join(
        character if character.isprintable() else " " for character in text.strip()
    ).strip()
