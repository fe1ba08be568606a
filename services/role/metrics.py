"""The fields that all heartbeats have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aclearn.telemetry import BusyShare, WaitMeter, add_up
from aclearn.wire import Heartbeat, Server
from services.role.worker_pool import WorkerPool


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
        **fields: Any,
    ) -> Heartbeat:
        """A heartbeat of the role's own fields."""
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
        if self.workers is not None:
            waits, parts = self.workers.waits(), add_up(self.workers.parts(), parts)
            counters["worker_failures"] = self.workers.failures
            gauges["workers"] = float(self.workers.running)
            gauges["sockets_busy"] = self._sockets_busy.take()
        return Heartbeat(counters=counters, gauges=gauges, waits=waits, parts=parts, **fields)
