"""A role from outside the packages: its work, and its entry in the table of roles."""

from __future__ import annotations

import time

from aclearn.wire import Heartbeat
from services.role.context import RoleContext
from services.role.loop import MonitoredRole, Role
from services.role.metrics import RoleMetrics
from services.roles import ROLES, RoleSpec

ROLES["toy"] = RoleSpec(
    "toy",
    "tests.support.toys.toy_role:make_toy",
    processes_key="predictor.processes",
    needs_environment=False,
)


def make_toy(context: RoleContext) -> Role:
    """Counts steps until it is stopped."""
    metrics, turns = RoleMetrics(), 0

    def heartbeat() -> Heartbeat:
        return metrics.heartbeat(counters={"turns": turns}, gauges={"number": context.index})

    def work(timeout_s: float) -> None:
        nonlocal turns
        with metrics.meter.waiting("the next turn"):
            time.sleep(timeout_s)
        turns += 1

    return MonitoredRole(context.join(heartbeat), metrics.meter, work)
