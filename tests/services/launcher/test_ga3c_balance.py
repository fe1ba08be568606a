"""GA3C's balance of rates: PPS ≈ TPS × TMAX × environments of a batch, frames/s = 4 × PPS."""

from __future__ import annotations

import pytest

from tests.support.whole_run import WholeRun


@pytest.mark.parametrize("inference", ["local", "predictor"])
def test_predictions_batches_and_frames_are_in_balance(tmp_path, inference: str) -> None:
    t_max, envs, unrolls = 4, 2, 2
    run = WholeRun(
        tmp_path,
        run={"max_updates": 60},
        env={"id": "ALE/Pong-v5", "frame_stack": 1, "atari": {"screen_size": 40}},
        policy={"architecture": "mlp", "hidden": [8]},
        actors={"processes": 2, "envs_per_group": envs, "unroll_length": t_max}
        | {"inference": inference},
        trainer={"unrolls_per_batch": unrolls},
    )
    run.run()
    lines = [line for line in run.lines() if line["tps"] > 0.0 and not line["dropped_steps"]]
    assert lines
    last = lines[-1]
    assert last["batch_steps"] == t_max * envs * unrolls
    # at both ends of the ten seconds of a rate each actor may hold an unroll and wait with another:
    # that many of the predictions between are learned elsewhere
    batches = min(last["updates"], last["tps"] * 10.0)
    tolerance = 2 * 2 * unrolls / batches
    assert last["pps"] == pytest.approx(last["tps"] * last["batch_steps"], rel=tolerance)
    for line in lines:
        assert line["frames_per_s"] == 4 * line["pps"]


def test_no_frames_are_claimed_without_an_emulator(tmp_path) -> None:
    run = WholeRun(tmp_path, run={"max_updates": 3})
    run.run()
    assert {line["frames_per_s"] for line in run.lines()} == {None}
