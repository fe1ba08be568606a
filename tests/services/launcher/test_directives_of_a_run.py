"""A new directive takes its class and the role that obeys it; whole runs in this process."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from aclearn.control import Directive, MonitorPlugin, Payload
from aclearn.types.array_rules import IntRule
from services.role.context import RoleContext
from services.role.loop import MonitoredRole, Role
from services.role.metrics import RoleMetrics
from services.roles import ROLES, RoleSpec
from tests.support.whole_run import WholeRun

DANCED: list[int] = []


@dataclass(frozen=True)
class Dance(Payload):
    """Dance so many turns."""

    turns: Annotated[int, IntRule(1, 9)]
    roles = ("toy",)


def make_toy(context: RoleContext) -> Role:
    """A role that dances, except the second one."""
    metrics = RoleMetrics()
    monitor = context.join(
        lambda: metrics.heartbeat(counters={}, gauges={}),
        on={Dance: lambda dance: DANCED.append(dance.turns)} if context.index == 0 else {},
    )
    return MonitoredRole(monitor, metrics.meter, lambda timeout_s: None)


class Choreographer(MonitorPlugin):
    """Says 8 turns, then 9, then more, which are beyond the bounds."""

    def __init__(self) -> None:
        self._turns = itertools.count(8)

    def observe(self, indicators):
        return [Directive("all", Dance(next(self._turns)))]


def test_a_directive_of_outside_reaches_the_role_that_obeys_it_and_others_refuse_it(
    tmp_path: Path, monkeypatch, caplog
) -> None:
    monkeypatch.setitem(
        ROLES,
        "toy",
        RoleSpec("toy", f"{__name__}:make_toy", "actors.processes", needs_environment=False),
    )
    caplog.set_level("INFO")
    DANCED.clear()
    run = WholeRun(
        tmp_path,
        run={"max_updates": 40},
        monitor={"plugins": [f"{__name__}:Choreographer"]},
    )
    summary = run.run()
    assert DANCED == [8, 9]
    assert run.passed["Dance"] == 4  # to two processes each: a refused one is not repeated
    line = run.lines()[-1]
    assert line["monitor_directives_refused"] == 2.0
    assert line["monitor_plugin_failures"] > 0.0  # ten turns are beyond the bounds
    assert (summary["reason"], summary["updates"]) == ("max_updates", 40)
    assert "toy-1 refuses directive 1: Dance: it is not obeyed here; expected one of" in caplog.text
