"""`check_indicator`: tests the contract of an indicator."""

from __future__ import annotations

import copy
from types import MappingProxyType
from typing import Any

from aclearn.metrics.indicators.indicator import Episode, Indicator, RunSample
from aclearn.metrics.indicators.indicator_set import figures_of, names_fault
from aclearn.metrics.names import FIXED_FIGURES
from aclearn.types import DEFAULT_POLICY


def check_indicator(indicator: Indicator, **figures: float) -> None:
    """Check the contract of `Indicator` on a short run.

    The run begins without episodes, with null or 0 for the metrics of every line.

    Args:
        figures: further metrics of its lines from the second one on, such as those of your loss.

    Raises:
        AssertionError: the indicator breaks the contract; says what was expected.
    """
    if (fault := names_fault(indicator.names)) is not None:
        raise AssertionError(fault)
    samples = [RunSample(MappingProxyType(line), ended) for line, ended in _short_run(figures)]
    results = []
    for copied in (copy.deepcopy(indicator), copy.deepcopy(indicator)):
        results.append([_figures(copied, i, sample) for i, sample in enumerate(samples)])
    if results[0] != results[1]:
        raise AssertionError(
            "observe: two runs of the same samples gave different metrics; read no clock, and "
            "draw random numbers from a seed only"
        )


def _figures(indicator: Indicator, index: int, sample: RunSample) -> dict[str, float | None]:
    try:
        return figures_of(indicator, sample)
    except ValueError as error:
        raise AssertionError(f"observe: {error}") from error
    except Exception as error:
        # the user's code may raise anything
        raise AssertionError(
            f"observe raised {error!r} at line {index} of a run; metrics may be null or missing "
            "until a role has reported them"
        ) from error


def _short_run(figures: dict[str, float]) -> list[tuple[dict[str, Any], list[Episode]]]:
    lines: list[tuple[dict[str, Any], list[Episode]]] = []
    for second in range(121):
        line: dict[str, Any] = {
            **dict.fromkeys(FIXED_FIGURES, 0),
            **{"dropped_steps": {}, "wait_share": {}, "checkpoint_error": None},
            "policy": DEFAULT_POLICY,
            "time_s": float(second),
            "env_steps": 100 * second,
            "return_mean_100": None if second < 2 else float(second),
            "best_return": None,
        }
        policy = ("original", "compressed", "mixed")[second % 3]
        ended = [Episode(float(second), policy)] if second > 1 else []
        lines.append((line | (figures if second else {}), ended))
    return lines
