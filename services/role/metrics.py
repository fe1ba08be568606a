"""The fields that all heartbeats have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from aclearn.telemetry import BusyShare, WaitMeter, add_up
from aclearn.types import DEFAULT_POLICY, pack_seen
from aclearn.wire import Heartbeat, PolicyNumbers, Server
from services.role.worker_pool import WorkerPool

Number = TypeVar("Number", int, float)


def sums_of(mappings: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    """The sums by name, of each name in any of them."""
    sums: dict[str, Number] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            sums[name] = sums[name] + value if name in sums else value
    return sums


def joined_numbers(numbers: Mapping[str, PolicyNumbers]) -> dict[str, Any]:
    """Fields of a heartbeat of a run's only policy, or of named ones: sums, and each one's own."""
    if numbers.keys() == {DEFAULT_POLICY}:
        only = numbers[DEFAULT_POLICY]
        return {each.name: getattr(only, each.name) for each in fields(only)}
    return {
        "counters": sums_of(each.counters for each in numbers.values()),
        "dropped": sums_of(each.dropped for each in numbers.values()),
        "gauges": {},
        "policies": dict(numbers),
    }


def updates_of_all(fields: Mapping[str, Any]) -> int:
    """The updates in a heartbeat's fields, of all policies together."""
    each = [numbers.counters for numbers in fields.get("policies", {}).values()]
    return sum(counters["updates"] for counters in each or [fields["counters"]])


@dataclass
class RoleMetrics:
    """Makes heartbeats of a role's own numbers and those of every role.

    Attributes:
        meter: of the thread that owns the sockets; None where roles share one thread, so that waits
            mean nothing.
        servers: whose refused messages are reported.
        workers: their waits are the role's, their work is added to that of `meter`; may be None.
    """

    meter: WaitMeter | None = field(default_factory=WaitMeter)
    servers: Sequence[Server] = ()
    workers: WorkerPool | None = None

    def __post_init__(self) -> None:
        self._sockets_busy = BusyShare(self.meter or WaitMeter())

    def heartbeat(
        self,
        *,
        counters: Mapping[str, int],
        gauges: Mapping[str, float],
        seen: Mapping[str, Mapping[str, int]] | None = None,
        **fields: Any,
    ) -> Heartbeat:
        """A heartbeat of the role's own fields.

        Args:
            seen: of a trainer, by policy: incarnation of an actor → its steps in the account.
        """
        # a name may be of a user's class, and a message takes printable ones only
        gauges = {
            name if name.isprintable() else ascii(name)[1:-1]: v for name, v in gauges.items()
        }
        counters = dict(counters)
        meter = self.meter
        waits, parts = (meter.seconds(), meter.parts()) if meter else ({}, {})
        if self.servers:
            refused = sum((server.refused for server in self.servers), Counter[str]())
            counters |= {f"refused.{reason}": count for reason, count in refused.items()}
            gauges["refused_messages"] = float(refused.total())
            gauges["refused_connections"] = float(
                sum(server.transport.refused_connections for server in self.servers)
            )
            gauges["refused_keys"] = float(sum(server.refused_keys for server in self.servers))
            gauges["refused_rights"] = float(refused["not_allowed"])
        if self.workers is not None:
            waits, parts = self.workers.waits(), add_up(self.workers.parts(), parts)
            counters["worker_failures"] = self.workers.failures
            gauges["workers"] = float(self.workers.running)
            gauges["sockets_busy"] = self._sockets_busy.take()
        packed = {policy: pack_seen(own) for policy, own in (seen or {}).items()}
        return Heartbeat(
            counters=counters,
            gauges=gauges,
            waits=waits,
            parts=parts,
            actors={policy: names for policy, (names, _) in packed.items()},
            actor_steps={policy: steps for policy, (_, steps) in packed.items()},
            **fields,
        )
