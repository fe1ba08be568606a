"""A monitor plug-in from outside our packages in a real run: one file and a line of YAML."""

from __future__ import annotations

import re

from tests.support.system import CARTPOLE, System

_PLUGIN = '''
from aclearn.control import Directive, MonitorPlugin, SetActors, SetWorkers


class MoreWhenItLearns(MonitorPlugin):
    """Other counts once so many steps are learned."""

    def __init__(self, after_steps):
        self.after_steps, self.learned = after_steps, 0

    def observe(self, indicators):
        for heartbeat in indicators.heartbeats:
            if heartbeat.role == "trainer":
                self.learned = heartbeat.counters["learned_steps"]
        if self.learned < self.after_steps:
            return []
        cause = {"learned_steps": self.learned, "actors": len(indicators.of_role("actor"))}
        return [
            Directive("trainer", SetWorkers(2), cause),
            Directive("supervisor", SetActors(3), cause),
        ]

    def gauges(self):
        return {"seen_steps": float(self.learned)}
'''
_BROKEN = """
from aclearn.control import MonitorPlugin


class Broken(MonitorPlugin):
    def observe(self, indicators):
        return indicators.nothing_of_that_name
"""


def test_it_sees_heartbeats_and_its_directives_are_acknowledged(system: System) -> None:
    (system.folder / "my_plugin.py").write_text(_PLUGIN)
    (system.folder / "broken.py").write_text(_BROKEN)
    named = ["broken:Broken", {"my_plugin:MoreWhenItLearns": {"after_steps": 2000}}]
    run = system.train(system.config(CARTPOLE, monitor={**CARTPOLE["monitor"], "plugins": named}))
    run.wait_for(lambda: run.last().get("workers") == 2.0, "the trainer has two workers")
    run.wait_for(lambda: "actor-2" in run.pids(), "a third actor runs")
    answered = run.wait_for(
        lambda: (
            (line := run.last())["monitor_directives"] >= 2.0
            and line["monitor_directives_unacknowledged"] == 0.0
            and line
        ),
        "both directives are acknowledged",
    )
    assert answered["plugin_seen_steps"] >= 2000
    assert answered["monitor_plugin_failures"] > 0  # of the other one; the run goes on
    # a trainer that is started again gets what stands
    old = run.kill_role("trainer-0")
    run.wait_for_new("trainer-0", old)
    run.wait_for(lambda: run.last()["generation"] == 1, "the new trainer heartbeats")
    run.wait_for(lambda: run.last().get("workers") == 2.0, "it has two workers as well")
    run.finish()
    log = run.log("monitor-0")
    # once each, however often it was given
    assert log.count("payload=SetWorkers(count=2, id=") == 1
    assert log.count("by=my_plugin:MoreWhenItLearns to=supervisor payload=SetActors(count=3") == 1
    assert re.search(r"to=trainer .* cause=\{'learned_steps': \d{4,}, 'actors': 2\}", log)
    assert log.count("event=plugin_failed") == 1
    assert "has no attribute 'nothing_of_that_name'" in log


def test_a_run_whose_plugin_cannot_be_loaded_says_so(system: System) -> None:
    run = system.train(system.config(CARTPOLE, monitor={"plugins": ["no_such_module:Plugin"]}))
    assert run.wait() != 0
    assert "module 'no_such_module' cannot be imported" in run.output
    assert "monitor.plugins" in run.output
