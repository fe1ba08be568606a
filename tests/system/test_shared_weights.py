"""Whole runs whose roles read the trainer's weights from shared memory."""

from __future__ import annotations

from tests.support.system import CARTPOLE, Run, System

_ROOM = {"max_restarts": 20, "backoff_first_s": 0.1, "backoff_max_s": 0.2}


def test_a_run_learns_on_shared_weights_and_survives_the_kill_of_its_trainer(
    system: System,
) -> None:
    config = system.config(
        CARTPOLE,
        actors={"processes": 1},
        trainer={"device": "cpu", "unrolls_per_batch": 2, "share_weights": "host"},
        supervisor=_ROOM,
    )
    run = system.train(config)
    run.wait_until_learning()
    run.wait_for(lambda: _buffers(run) == 1, "actor-0 reads the buffer")
    # its unrolls alone make versions: if it were stuck at one, they would be dropped 100 later
    run.wait_for(lambda: run.last()["policy_version"] > 300, "three hundred versions")
    run.kill_role("trainer-0")
    run.wait_for(lambda: run.last()["generation"] == 1, "the new trainer reports")
    run.wait_for(lambda: _buffers(run) == 2, "actor-0 reads the new buffer")
    version = run.last()["policy_version"]
    run.wait_for(lambda: run.last()["policy_version"] > version + 300, "three hundred more")
    run.finish()


def _buffers(run: Run) -> int:
    return run.log("actor-0").count("event=weights_shared")
