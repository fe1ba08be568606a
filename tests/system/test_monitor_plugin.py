"""A monitor plug-in and a link from outside our packages in a real run: a line of YAML each."""

from __future__ import annotations

import re

from tests.support.system import CARTPOLE, TOYS, System


def test_it_sees_heartbeats_and_its_directives_are_acknowledged(system: System) -> None:
    system.cwd = TOYS
    plugins = ["toy_plugin:Broken", {"toy_plugin:MoreWhenItLearns": {"after_steps": 2000}}]
    chain = [{"toy_link:RoundWeights": 0.0625}, "onnx"]
    run = system.train(
        system.config(CARTPOLE, monitor={"plugins": plugins}, compressor={"chain": chain})
    )
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
    assert answered["monitor_plugin_failures"] > 0  # of the other one; the run continues
    run.wait_for(lambda: run.last().get("compressor_round_versions", 0) > 0, "the link is used")
    run.wait_for(lambda: run.last().get("compressed_share", 0) > 0, "actors act on what it makes")
    # a restarted trainer gets the directives in force
    old = run.kill_role("trainer-0")
    run.wait_for_new("trainer-0", old)
    run.wait_for(lambda: run.last()["generation"] == 1, "the new trainer heartbeats")
    run.wait_for(lambda: run.last().get("workers") == 2.0, "it has two workers as well")
    run.finish()
    log = run.log("monitor-0")
    # once each, however often the plug-in repeats them
    assert log.count("payload=SetWorkers(count=2) ") == 1
    assert log.count("by=toy_plugin:MoreWhenItLearns to=supervisor payload=SetActors(count=3") == 1
    assert re.search(r"to=trainer .* cause=\{'learned_steps': \d{4,}, 'actors': 2\}", log)
    assert log.count("event=plugin_failed") == 1
    assert "has no attribute 'nothing_of_that_name'" in log
