"""Whole runs whose roles read the trainer's weights from shared memory."""

from __future__ import annotations

from tests.support.system import CARTPOLE, Run, System

_ROOM = {"max_restarts": 20, "backoff_first_s": 0.1, "backoff_max_s": 0.2}


def test_a_run_learns_on_shared_weights_and_survives_the_kill_of_its_trainer(
    system: System,
) -> None:
    config = system.config(
        CARTPOLE,
        trainer={"device": "cpu", "unrolls_per_batch": 2, "share_weights": "host"},
        supervisor=_ROOM,
    )
    run = system.train(config)
    run.wait_until_learning()
    run.wait_for(lambda: _buffers(run) == 1, "actor-0 reads the buffer")
    _wait_for_300_versions(run)
    run.kill_role("trainer-0")
    run.wait_for(lambda: run.last()["generation"] == 1, "the new trainer reports")
    run.wait_for(lambda: _buffers(run) == 2, "actor-0 reads the new buffer")
    _wait_for_300_versions(run)
    run.finish()


def _wait_for_300_versions(run: Run) -> None:
    """Wait for 300 versions in a row without an unroll that was too old.

    A stuck actor's unrolls are too old after 100, `max_lag_versions`; a starved actor recovers.
    """
    since = {"version": -1, "lag": -1}

    def look() -> bool:
        line = run.last()
        version, lag = line["policy_version"], line["dropped_steps"].get("lag", 0)
        if lag != since["lag"]:
            since.update(version=version, lag=lag)
        return version > since["version"] + 300

    run.wait_for(look, "300 versions without an unroll that is too old")


def _buffers(run: Run) -> int:
    return run.log("actor-0").count("event=weights_shared")
