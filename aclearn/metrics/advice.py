"""Advice against a bottleneck."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aclearn.metrics.names import TUNED_COUNTS, TUNER_FROZEN, TUNER_TEMPERATURE

# With less of a core free than this, another busy process slows the others.
_FREE = 0.5


def may_be_free(free: float | None) -> bool:
    """Whether another process may find a free core; True if unknown (None)."""
    return free is None or free >= _FREE


def advice(free: float | None, *, more: str, less: tuple[str, ...]) -> str:
    """More of something where cores are free; otherwise cheaper alternatives."""
    if free is None:
        ways, busy = (f"more {more} where cores are free", *less), ""
    elif free >= _FREE:
        ways, busy = (f"more {more} ({free:.1f} cores are free)", *less), ""
    else:
        ways, busy = less, "no core is free, so "
    *first, last = ways
    return f"{busy}{', '.join(first)}{' or ' if first else ''}{last} would help"


def tuner_hint(count: str, line: Mapping[str, Any]) -> str:
    """How the run's tuner changes this count by this metrics line, or could."""
    if TUNER_TEMPERATURE not in line:
        # the default tuner.counts are predictors and trainers
        also = " with actors in tuner.counts" if count == "actors" else ""
        return f"tuner.enabled=true{also} tries such counts by itself"
    if count not in [name for name in TUNED_COUNTS if f"tuner_{name}" in line]:
        return f"the tuner would try such counts with {count} in tuner.counts"
    if line.get(TUNER_FROZEN):
        return "the tuner has tried such counts and keeps the best"
    return "the tuner is trying such counts"
