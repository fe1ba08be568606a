"""A run of processes, and its updates once more."""

from __future__ import annotations

import signal

from aclearn.runs import starts_in
from tests.support.system import CARTPOLE, System


def test_updates_of_an_asynchronous_run_are_repeated_after_a_kill_and_after_its_end(
    system: System,
) -> None:
    run = system.train(system.config(CARTPOLE, run={"flight_recorder": 50}))
    ring = run.folder / "flight_recorder" / "default"
    run.wait_for(lambda: run.last().get("recorded_batches", 0) > 50, "the ring is full")
    run.kill_role("trainer-0")
    run.wait_for(lambda: len(starts_in(ring)) == 2, "the next trainer records")
    learned = run.last()["learned_steps"]
    run.wait_until_learning(beyond=learned + 2000)
    run.finish(signal.SIGTERM)
    for generation in ("0", "1"):
        replay = system.command("replay", run.folder, "--generation", generation)
        assert replay.wait() == 0, replay.output
        assert "the same bits" in replay.output and "DIFFERENT" not in replay.output
    # the last checkpoint is that of the last recorded batch
    newest = max(run.folder.glob("checkpoints/*.json")).stem
    assert f"{newest}, after update" in replay.output
