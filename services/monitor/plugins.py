"""The monitor's plug-ins: loaded by name, asked in turn, and survived where they fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aclearn.config import MAX_PROCESSES
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
from aclearn.extensions import load_extension, make_extension
from aclearn.runs import is_metrics_line
from aclearn.wire import SaveBest, encode
from services.roles import ACTOR, COMPRESSOR, ROLES
from services.runtime.worker_pool import MOST_WORKERS

_LOGGER = logging.getLogger(__name__)

#: The name of the tuner among the plug-ins.
TUNER = "tuner"
#: Counts that no role could have.
_MOST: dict[type, int] = {SetWorkers: MOST_WORKERS, SetActors: MAX_PROCESSES}
#: What a plug-in may say to whom. `StopRole` is not among it: to roles it is the end of the run,
#: which a plug-in asks for with `StopRun`.
_TAKEN: dict[str, tuple[type, ...]] = {"monitor": (StopRun, Note), "supervisor": (SetActors,)}
_TAKEN_BY_ROLES: tuple[type, ...] = (SaveBest, SetWorkers)
#: What only processes of this role take.
_TAKEN_BY_ROLE: dict[str, type] = {COMPRESSOR.name: SetChain, ACTOR.name: SetMix}


class Plugins:
    """Asks each plug-in what it wants. One that raises is counted and logged; the others go on.

    Args:
        named: name → plug-in; the later ones overrule the earlier ones.
        rungs: of the ladder of chains; 0 without a compressor.
        mixes: whether actors can play two policies.

    Attributes:
        failures: errors that plug-ins raised, and directives that cannot be, so far.
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
        """What the plug-ins want: each directive with rank and name of its plug-in."""
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

    def add_gauges(self, line: dict[str, Any]) -> None:
        """Add the plug-ins' numbers to a metrics line, those of a user as `plugin_<gauge>`."""
        if not self._named:
            return
        for name, plugin in self._named.items():
            try:
                gauges = dict(plugin.gauges())
                if not is_metrics_line(gauges):
                    raise ValueError(f"gauges() gave what is no finite number: {gauges!r:.200}")
            except Exception as error:
                self._fail(name, error)
                continue
            line |= {f"{_prefix(name)}{gauge}": value for gauge, value in gauges.items()} | line
        line["monitor_plugin_failures"] = float(self.failures)

    def close(self) -> None:
        """Tell each that the run is over."""
        for name, plugin in self._named.items():
            try:
                plugin.close()
            except Exception as error:
                self._fail(name, error)

    def _check(self, directive: Directive) -> None:
        """Refuse what no role could take.

        Raises:
            ValueError: it is no directive, goes to no role, or its payload cannot be sent or
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
        # the traceback once for each plug-in and class of error: it may come ten times a second
        seen = f"{name} {type(error).__name__}"
        if seen not in self._reported:
            self._reported.add(seen)
            _LOGGER.error("event=plugin_failed plugin=%s", name, exc_info=error)


def load_plugins(
    entries: Sequence[Mapping[str, Mapping[str, Any]]],
) -> dict[str, MonitorPlugin]:
    """The plug-ins of `monitor.plugins`, by name; the second of a name gets a number.

    Args:
        entries: `module:Name` → arguments, one each.

    Raises:
        ConfigError: one cannot be imported or made, or is no `MonitorPlugin`.
    """
    plugins: dict[str, MonitorPlugin] = {}
    for number, entry in enumerate(entries):
        [(name, arguments)] = entry.items()
        plugin = make_extension(
            load_extension(name, key="monitor.plugins"),
            arguments,
            expected=MonitorPlugin,
            where=f"monitor.plugins {name!r}",
        )
        plugins[name if name not in plugins else f"{name} {number}"] = plugin
    return plugins


def _prefix(name: str) -> str:
    """Of the gauges of a plug-in; the tuner's have its name already."""
    return "" if name == TUNER else "plugin_"
