"""A role from outside the packages: its loop, and its entry in the table of roles."""

from __future__ import annotations

import time

from aclearn.wire import Heartbeat
from services.roles import ROLES, RoleSpec
from services.runtime.role_context import RoleContext
from services.runtime.role_metrics import RoleMetrics

ROLES["toy"] = RoleSpec(
    "toy",
    "tests.support.toys.toy_role:run_toy",
    processes_key="predictor.processes",
    needs_environment=False,
)


def run_toy(context: RoleContext) -> int:
    """Count turns until told to stop; its exit status."""
    metrics, turns = RoleMetrics(), 0

    def heartbeat() -> Heartbeat:
        return metrics.heartbeat(counters={"turns": turns}, gauges={"number": context.index})

    with context.join(heartbeat) as monitor:
        while monitor.goes_on(metrics.meter):
            with metrics.meter.waiting("the next turn"):
                time.sleep(0.01)
            turns += 1
    return monitor.exit_status
