"""A role from outside the packages: an entry in the table and one file with its loop."""

from __future__ import annotations

import json
import signal

from tests.support.system import CARTPOLE, System
from tests.support.visitor import Visitor


def test_a_role_in_the_table_is_started_counted_restarted_and_stopped(system: System) -> None:
    # every Python process of the test reads it: the command line, the launcher, the monitor
    (system.folder / "sitecustomize.py").write_text("import tests.support.toys.toy_role\n")
    run = system.train(system.config(CARTPOLE, actors={"processes": 1}))
    run.wait_until_learning()
    run.wait_for(lambda: run.last().get("toy_number") == 0.0, "the launcher's toy is counted")
    assert run.last()["wait_share"]["toy"]["the next turn"] > 0.5
    run.wait_for_new("toy-0", run.kill_role("toy-0"))

    # started by hand: the monitor hands out the next number
    by_hand = system.role("toy", system.folder / "c.yaml", run.monitor_address())
    run.wait_for(lambda: run.last().get("toy_number") == 0.5, "two toys, of numbers 0 and 1")
    visitor = Visitor(run.monitor_address())
    try:
        members = visitor.status()["members"]
    finally:
        visitor.close()
    assert sorted(members) == ["actor-0", "toy-0", "toy-1", "trainer-0"]
    by_hand.signal(signal.SIGTERM)
    assert by_hand.wait(within_s=10.0) == 128 + signal.SIGTERM, by_hand.output
    run.wait_for(lambda: run.last().get("toy_number") == 0.0, "the second has said goodbye")

    run.signal(signal.SIGTERM)
    assert run.wait(within_s=10.0) == 128 + signal.SIGTERM, run.diagnosis()
    summary = json.loads((run.folder / "summary.json").read_text())
    assert (summary["reason"], summary["in_flight_steps"]) == ("SIGTERM", 0)
    assert "Traceback" not in run.log("toy-0")
    unknown = system.role("toys", system.folder / "c.yaml", "ipc:///nowhere")
    assert unknown.wait() == 64
    assert "expected one of monitor, trainer, predictor, compressor, actor, toy" in unknown.output
