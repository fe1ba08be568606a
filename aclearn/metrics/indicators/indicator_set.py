"""The indicators of a run, ours and the user's: loading, calls, errors."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Sequence
from numbers import Real
from types import MappingProxyType
from typing import Any

from aclearn.config.monitor import UsersClass
from aclearn.errors import ConfigError
from aclearn.extensions import make_extension
from aclearn.metrics.indicators.indicator import Episode, Indicator, RunSample
from aclearn.metrics.indicators.returns import ReturnSlope, RewardGap
from aclearn.metrics.names import refused_name

_LOGGER = logging.getLogger(__name__)
_KEY = "monitor.indicators"


class IndicatorSet:
    """Adds the metrics of all indicators to metrics lines.

    Attributes:
        failures: of the user's indicators: errors and invalid results.
    """

    def __init__(self, return_window_s: float = 60.0, own: Sequence[Indicator] = ()) -> None:
        ours = (ReturnSlope(return_window_s), RewardGap(return_window_s))
        self._indicators, self._has_own = (*ours, *own), bool(own)
        self._reported: set[tuple[str, str]] = set()
        self.failures = 0

    def add_figures(self, line: dict[str, Any], episodes: Sequence[Episode]) -> None:
        """Add the indicators' metrics to a line with the metrics of the roles."""
        for indicator in self._indicators:
            try:
                found = figures_of(indicator, RunSample(MappingProxyType(line), episodes))
            except Exception as error:
                self._fail(indicator, error)
                found = {}
            figures = dict.fromkeys(indicator.names) | found
            line |= {name: value for name, value in figures.items() if name not in line}
        if self._has_own:
            line["monitor_indicator_failures"] = float(self.failures)

    def _fail(self, indicator: Indicator, error: Exception) -> None:
        self.failures += 1
        # one traceback per indicator and class of error: lines are made twice a second
        key = (type(indicator).__qualname__, type(error).__name__)
        if key not in self._reported:
            self._reported.add(key)
            _LOGGER.error("event=indicator_failed indicator=%s", key[0], exc_info=error)


def load_indicators(entries: Iterable[UsersClass]) -> list[Indicator]:
    """The indicators of `monitor.indicators`.

    Raises:
        ConfigError: one cannot be imported or made, is no `Indicator`, or has the name of another
            metric or an invalid one.
    """
    made: list[Indicator] = []
    for entry in entries:
        name, arguments = entry.name, entry.arguments.model_dump()
        indicator = make_extension(name, arguments, key=_KEY, expected=Indicator)
        taken = {figure for other in made for figure in other.names}
        if (fault := names_fault(indicator.names, taken)) is not None:
            raise ConfigError(f"{_KEY} {name!r}: {fault}")
        made.append(indicator)
    return made


def names_fault(names: Collection[str], taken: Collection[str] = ()) -> str | None:
    """Why a user's indicator cannot have these names; None if it can."""
    if isinstance(names, str) or not names:
        return f"names: expected the names of its figures in a tuple, got {names!r}"
    for name in names:
        if (fault := refused_name(name)) is not None:
            return f"names: {fault}"
        if name in taken:
            return f"names: {name!r} is a figure of another indicator of monitor.indicators"
    return None


def figures_of(indicator: Indicator, run: RunSample) -> dict[str, float | None]:
    """The present metrics of an indicator.

    Raises:
        ValueError: a result is not valid in a metrics line.
        Exception: the indicator raises it.
    """
    found: dict[str, float | None] = {}
    for name, value in dict(indicator.observe(run)).items():
        if name not in indicator.names:
            raise ValueError(f"{name!r}: expected a name among {tuple(indicator.names)}")
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        if value is not None and not number:
            raise ValueError(f"{name}: expected a finite number or None, got {value!r:.200}")
        found[name] = None if value is None else float(value)
    if hidden := sorted(set(indicator.names) & run.line.keys()):
        raise ValueError(f"{hidden[0]}: the line has a figure of this name; choose another one")
    return found
