"""Whole runs whose roles read the trainer's weights from memory that they share with it."""

from __future__ import annotations

import pytest
from system_harness import CARTPOLE, System

_ROOM = {"max_restarts": 20, "backoff_first_s": 0.1, "backoff_max_s": 0.2}


@pytest.mark.parametrize(
    ("inference", "reader"), [("local", "actor-0"), ("predictor", "predictor-0")]
)
def test_a_run_learns_on_shared_weights_and_survives_the_kill_of_its_trainer(
    system: System, inference: str, reader: str
) -> None:
    config = system.config(
        CARTPOLE,
        actors={"inference": inference},
        trainer={"device": "cpu", "unrolls_per_batch": 2, "share_weights": "host"},
        supervisor=_ROOM,
    )
    run = system.train(config)
    line = run.wait_until_learning(beyond=1000)
    assert run.log(reader).count("event=weights_shared") == 1
    assert line["lag_mean"] < 50  # versions arrive
    run.kill_role("trainer-0")
    run.wait_for(lambda: run.last()["epoch"] == 1, "the new trainer reports")
    learned = run.last()["learned_steps"]
    run.wait_until_learning(beyond=learned + 1000)
    assert run.log(reader).count("event=weights_shared") == 2
    assert run.last()["dropped_steps"].get("stale", 0) == 0
    run.finish()
