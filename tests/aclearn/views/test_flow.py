"""The flow of a run's data from one metrics line."""

from __future__ import annotations

from aclearn.metrics import find_bottleneck
from aclearn.views.flow import flow_of

_LINE = {
    "time_s": 60.0,
    "learned_steps": 1000,
    "updates": 10,
    "env_steps_per_s": 1122.0,
    "learned_steps_per_s": 1318.0,
    "tps": 2.6,
    "lag_mean": 5.5,
    "lag_max": 6.0,
    "queue_fill": 0.9,
    "monitor_free_cores": 0.0,
    "wait_share": {
        "monitor": {"messages": 0.99, "working": 0.01},
        "trainer": {"unrolls": 0.02, "working": 0.98},
        "actor": {"emulator": 0.2, "training queue": 0.5, "working": 0.3},
    },
}


def test_roles_stand_in_the_order_of_the_data_with_their_waits_and_rates() -> None:
    flow = flow_of(_LINE, find_bottleneck(_LINE))
    actor, trainer = flow.boxes
    assert (actor.role, trainer.role) == ("actor", "trainer")
    assert list(actor.waits.items()) == [("training queue", 0.5), ("emulator", 0.2)]
    assert actor.rates == ("1.12 k steps/s",)
    assert trainer.rates == ("1.32 k steps/s", "2.6 batches/s")
    assert (actor.processes, actor.restarts) == (None, None)
    assert trainer.working == 0.98


def test_the_slowest_part_is_marked_with_the_advice_of_the_console() -> None:
    found = find_bottleneck(_LINE)
    flow = flow_of(_LINE, found)
    assert [box.role for box in flow.boxes if box.slowest] == ["trainer"]
    assert flow.advice == found.sentence
    assert flow.queues == {"training queue": 0.9}
    assert flow.queue_before == {"trainer": "training queue"}
    assert flow.lag == "5.5 (max 6)"


def test_processes_and_restarts_are_those_of_the_supervisor() -> None:
    roles = [
        {"role": "actor", "name": "actor-0", "state": "running", "restarts": 2},
        {"role": "actor", "name": "actor-1", "state": "running", "restarts": 1},
        {"role": "compressor", "name": "compressor-0", "state": "waiting"},
    ]
    line = {**_LINE, "compressor_artifact_interval_s": 1.25, "compressor_artifact_bytes": 51200.0}
    boxes = {box.role: box for box in flow_of(line, find_bottleneck(line), roles).boxes}
    assert (boxes["actor"].processes, boxes["actor"].restarts) == (2, 3)
    assert (boxes["trainer"].processes, boxes["trainer"].restarts) == (0, 0)
    assert boxes["compressor"].rates == ("an artifact each 1.25 s", "51.2 kB")
    assert boxes["compressor"].working is None


def test_a_run_that_has_not_reported_has_no_boxes_and_no_lag() -> None:
    flow = flow_of({}, find_bottleneck({}))
    assert (flow.boxes, flow.queues, flow.lag) == ((), {}, None)
    assert flow.advice == "not known yet: the trainer has not reported"
