"""The monitor's plug-ins: loading, calls, errors."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aclearn.config import MAX_PROCESSES
from aclearn.config.monitor import UsersClass
from aclearn.control import (
    Directive,
    Indicators,
    MonitorPlugin,
    Note,
    SetActors,
    SetChain,
    SetMix,
    SetWorkers,
    StopRun,
)
from aclearn.control.strategies.strategy_plugin import StrategyPlugin
from aclearn.control.tuner.plugin import TunerPlugin
from aclearn.extensions import make_extensions
from aclearn.runs import is_metrics_line
from aclearn.wire import SaveBest, encode
from services.role.worker_pool import MOST_WORKERS
from services.roles import ACTOR, COMPRESSOR, ROLES

_LOGGER = logging.getLogger(__name__)

#: The tuner's name among the plug-ins.
TUNER = "tuner"
#: Plug-ins of ours, whose gauges have their final names.
_NAME_THEIR_GAUGES = (TunerPlugin, StrategyPlugin)
#: Largest counts of any role.
_MOST: dict[type, int] = {SetWorkers: MOST_WORKERS, SetActors: MAX_PROCESSES}
#: Allowed payloads by receiver. `StopRole` is missing: a plug-in ends the run with `StopRun`.
_TAKEN: dict[str, tuple[type, ...]] = {"monitor": (StopRun, Note), "supervisor": (SetActors,)}
_TAKEN_BY_ROLES: tuple[type, ...] = (SaveBest, SetWorkers)
#: Payloads that only processes of this role handle.
_TAKEN_BY_ROLE: dict[str, type] = {COMPRESSOR.name: SetChain, ACTOR.name: SetMix}


class Plugins:
    """Calls each plug-in. One that raises is counted and logged; the others continue.

    Args:
        named: name → plug-in; later ones overrule earlier ones.
        rungs: of the ladder of chains; 0 without a compressor.
        mixes: whether actors can play two policies.

    Attributes:
        failures: errors of plug-ins and invalid directives so far.
    """

    def __init__(
        self, named: Mapping[str, MonitorPlugin], *, rungs: int = 0, mixes: bool = False
    ) -> None:
        self._named, self._rungs, self._mixes = dict(named), rungs, mixes
        self._reported: set[str] = set()
        self.failures = 0

    def __bool__(self) -> bool:
        return bool(self._named)

    def observe(self, indicators: Indicators) -> Iterator[tuple[int, str, Directive]]:
        """The plug-ins' directives, each with the rank and name of its plug-in."""
        for rank, (name, plugin) in enumerate(self._named.items()):
            try:
                directives = list(plugin.observe(indicators))
                for directive in directives:
                    self._check(directive)
            except Exception as error:
                self._fail(name, error)
                continue
            for directive in directives:
                yield rank, name, directive

    def rank_of(self, name: str, directive: Directive) -> int | None:
        """Rank of the plug-in of that name; None if it is gone or cannot give this directive."""
        try:
            self._check(directive)
        except (ValueError, TypeError):
            return None
        return list(self._named).index(name) if name in self._named else None

    def add_gauges(self, line: dict[str, Any]) -> None:
        """Add the plug-ins' gauges to a metrics line, a user's as `plugin_<gauge>`."""
        if not self._named:
            return
        for name, plugin in self._named.items():
            try:
                gauges = dict(plugin.gauges())
                if not is_metrics_line(gauges):
                    raise ValueError(f"gauges() returned a non-finite value: {gauges!r:.200}")
            except Exception as error:
                self._fail(name, error)
                continue
            prefix = "" if isinstance(plugin, _NAME_THEIR_GAUGES) else "plugin_"
            line |= {f"{prefix}{gauge}": value for gauge, value in gauges.items()} | line
        line["monitor_plugin_failures"] = float(self.failures)

    def close(self) -> None:
        """Close each plug-in."""
        for name, plugin in self._named.items():
            try:
                plugin.close()
            except Exception as error:
                self._fail(name, error)

    def _check(self, directive: Directive) -> None:
        """Check that a directive has a receiver that handles it.

        Raises:
            ValueError: it is no directive, has no such receiver, or its payload cannot be sent or
                followed.
            TypeError: a value of the payload is of the wrong type.
        """
        if not isinstance(directive, Directive):
            raise ValueError(f"expected a Directive, got {type(directive).__name__}")
        if not isinstance(directive.cause, Mapping):
            raise ValueError(f"cause: expected a mapping, got {type(directive.cause).__name__}")
        to, payload = directive.to, directive.payload
        role = to.split("-")[0]
        if to not in ("all", *_TAKEN) and role not in ROLES:
            raise ValueError(f"expected a role, a name, all, supervisor or monitor: {to!r}")
        own = (_TAKEN_BY_ROLE[role],) if role in _TAKEN_BY_ROLE else ()
        kinds = _TAKEN.get(to, (*_TAKEN_BY_ROLES, *own))
        if not isinstance(payload, kinds):
            names = ", ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{to}: expected a payload among {names}; got {payload!r:.200}")
        if isinstance(payload, Note):
            if not isinstance(payload.text, str):
                raise ValueError(f"Note: expected text, got {type(payload.text).__name__}")
            return
        encode(payload, run="", incarnation="", sequence=0)
        if isinstance(payload, SetChain) and payload.rung >= self._rungs:
            raise ValueError(f"expected a rung below {self._rungs}, got {payload!r}")
        if isinstance(payload, SetMix):
            if not self._mixes:
                raise ValueError(
                    "SetMix: only actors that choose their actions (actors.inference: local) from "
                    "compressed policies (compressor.chain or compressor.ladder) play two policies"
                )
            if not 0.0 <= payload.compressed_share <= 1.0:
                raise ValueError(f"expected a compressed_share of 0 to 1, got {payload!r}")
        if (
            isinstance(payload, SetWorkers | SetActors)
            and not 1 <= payload.count <= _MOST[type(payload)]
        ):
            raise ValueError(f"expected 1 to {_MOST[type(payload)]}, got {payload!r}")

    def _fail(self, name: str, error: Exception) -> None:
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

    Args:
        entries: one each.

    Raises:
        ConfigError: one cannot be imported or made, or is no `MonitorPlugin`.
    """
    named = ((entry.name, entry.arguments.model_dump()) for entry in entries)
    return make_extensions(named, key="monitor.plugins", expected=MonitorPlugin)
