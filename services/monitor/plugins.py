"""The monitor's plug-ins: loading, calls, errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aclearn.config import Config
from aclearn.config.monitor import UsersClass
from aclearn.control import Directive, Indicators, MonitorPlugin, Payload, SetActors
from aclearn.control.strategies.strategy_plugin import StrategyPlugin
from aclearn.control.tuner.plugin import TunerPlugin
from aclearn.extensions import make_extensions
from aclearn.runs import is_metrics_line

_LOGGER = logging.getLogger(__name__)

#: The tuner's name among the plug-ins.
TUNER = "tuner"
#: Plug-ins of ours, whose gauges have their final names.
_NAME_THEIR_GAUGES = (TunerPlugin, StrategyPlugin)


class Plugins:
    """Calls each plug-in. One that raises is counted and logged; the others continue.

    Args:
        named: name → plug-in; later ones overrule earlier ones.

    Attributes:
        failures: errors of plug-ins and invalid directives so far.
    """

    def __init__(self, named: Mapping[str, MonitorPlugin], config: Config) -> None:
        self._named, self._config = dict(named), config
        self._reported: set[str] = set()
        self.failures = 0

    def __bool__(self) -> bool:
        return bool(self._named)

    def observe(self, indicators: Indicators) -> Iterator[tuple[int, str, Directive]]:
        """The plug-ins' directives, each with the rank and name of its plug-in."""
        for rank, (name, plugin) in enumerate(self._named.items()):
            directives: list[Directive] = []
            with self._guard(name):
                given = list(plugin.observe(indicators))
                for directive in given:
                    self.check(directive)
                directives = given
            for directive in directives:
                yield rank, name, directive

    @property
    def least_actors(self) -> int:
        """The least number of actors that the configuration allows."""
        return self._config.ranks

    def check_action(self, directive: Directive) -> None:
        """As `check`, of a directive that a user gives.

        Raises:
            ValueError: the run's configuration does not allow it.
        """
        self.check(directive)
        tuner = self._config.tuner
        if isinstance(directive.payload, SetActors) and tuner.enabled and "actors" in tuner.counts:
            raise ValueError(
                "SetActors: the tuner changes the number of actors, and would take yours for its "
                "own; resume the run without actors in tuner.counts"
            )

    def refusal(self, directive: Directive) -> str:
        """Why the run's configuration does not allow a directive; "" if it does."""
        try:
            self.check(directive)
        except ValueError as error:
            return str(error)
        return ""

    def rank_of(self, name: str, directive: Directive) -> int | None:
        """Rank of the plug-in of that name; None if it is gone or cannot give this directive."""
        if self.refusal(directive):
            return None
        return list(self._named).index(name) if name in self._named else None

    def add_gauges(self, line: dict[str, Any]) -> None:
        """Add the plug-ins' gauges to a metrics line, a user's as `plugin_<gauge>`."""
        if not self._named:
            return
        for name, plugin in self._named.items():
            with self._guard(name):
                gauges = dict(plugin.gauges())
                if not is_metrics_line(gauges):
                    raise ValueError(f"gauges() returned a non-finite value: {gauges!r:.200}")
                prefix = "" if isinstance(plugin, _NAME_THEIR_GAUGES) else "plugin_"
                line |= {f"{prefix}{gauge}": value for gauge, value in gauges.items()} | line
        line["monitor_plugin_failures"] = float(self.failures)

    def close(self) -> None:
        """Close each plug-in."""
        for name, plugin in self._named.items():
            with self._guard(name):
                plugin.close()

    def check(self, directive: Directive) -> None:
        """Check that a directive has a receiver, and a payload that can be sent and obeyed.

        Raises:
            ValueError: it is no directive, or not such a one.
        """
        if not isinstance(directive, Directive) or not isinstance(directive.payload, Payload):
            raise ValueError(f"expected a Directive with a payload, got {directive!r:.200}")
        if not isinstance(directive.cause, Mapping):
            raise ValueError(f"cause: expected a mapping, got {type(directive.cause).__name__}")
        to, payload = directive.to, directive.payload
        if to != "all" and not directive.is_for(to.split("-")[0], to):
            raise ValueError(
                f"{type(payload).__name__} goes to {' or '.join(payload.roles)}, to one process "
                f"({payload.roles[0]}-0), or to all of them (all); got {to!r}"
            )
        payload.values()  # within its bounds
        payload.check(self._config)

    @contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        """Count and log an error of the plug-in of that name."""
        try:
            yield
        except Exception as error:
            self.failures += 1
            # one traceback per plug-in and class of error: it may fail ten times a second
            seen = f"{name} {type(error).__name__}"
            if seen not in self._reported:
                self._reported.add(seen)
                _LOGGER.error("event=plugin_failed plugin=%s", name, exc_info=error)


def load_plugins(
    entries: Sequence[UsersClass],
) -> dict[str, MonitorPlugin]:
    """The plug-ins of `monitor.plugins` by name; a repeated name gets a number.

    Raises `ConfigError` if one cannot be imported or made, or is no `MonitorPlugin`.
    """
    named = ((entry.name, entry.arguments.model_dump()) for entry in entries)
    return make_extensions(named, key="monitor.plugins", expected=MonitorPlugin)
