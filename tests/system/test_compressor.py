"""Actors on compressed policies: the run learns, and a killed compressor stops nobody."""

from __future__ import annotations

from typing import Any

import pytest
from system_harness import CARTPOLE, PONG, Run, System

_ROOM = {"max_restarts": 20, "backoff_first_s": 0.1, "backoff_max_s": 0.2}
_CHAIN = {"chain": ["int8", "onnx"], "every_s": 0.05, "observations_every_s": 0.2}


def _compressed(run: Run, beyond: int = -1) -> dict[str, Any]:
    """The first line from which actors run artifacts of the chain newer than `beyond`."""

    def look() -> dict[str, Any] | None:
        line = run.last()
        newest = line.get("compressor_artifact_version", -1)
        return line if line.get("compressor_compressed") == 1.0 and newest > beyond else None

    return run.wait_for(look, f"an artifact of the chain is newer than {beyond}")


def test_a_run_on_int8_learns_and_outlives_its_compressor(system: System) -> None:
    compressor = _CHAIN | {"processes": 2}  # one for each actor
    run = system.train(system.config(CARTPOLE, compressor=compressor, supervisor=_ROOM))
    run.wait_until_learning(beyond=300)
    line = _compressed(run)
    assert 0.0 < line["compressor_kl_max"] < 1.0
    assert 0.0 < line["compressor_cpu_share"] <= 1.0
    assert line["compressor_errors"] == 0.0 <= line["compressor_plain_artifacts"]
    assert line["actor_policy_refused"] == 0.0 < line["actor_policy_swaps"]
    pids = run.pids()
    compressors, actors = {"compressor-0", "compressor-1"}, {"actor-0", "actor-1"}
    assert pids.keys() == {"monitor-0", "trainer-0"} | compressors | actors

    before = run.last()
    run.kill_role("compressor-0")
    # actors go on with the policy that they have, and get newer ones from the next incarnation
    _compressed(run, beyond=before["policy_version"])
    run.wait_until_learning(beyond=before["learned_steps"])
    # the other compressor's artifacts may be what was learned on: this one is back a little later
    run.wait_for(
        lambda: run.pids().get("compressor-0", pids["compressor-0"]) != pids["compressor-0"],
        "compressor-0 is back",
    )
    now = run.pids()
    assert now == pids | {"compressor-0": now["compressor-0"]}
    # the actor that pulls from it has connected to the next incarnation
    run.wait_for(
        lambda: run.log("actor-0").count("role=compressor name=compressor-0") >= 2,
        "actor-0 follows its compressor",
    )
    assert run.log("actor-1").count("role=compressor name=compressor-1") == 1
    summary = run.finish()
    assert summary["epoch"] == 0


def test_pong_runs_on_a_chain_and_its_unrolls_name_it(system: System) -> None:
    run = system.train(system.config(PONG, compressor=_CHAIN))
    line = _compressed(run)
    run.wait_for(
        lambda: run.last().get("compressed_share") == 1.0,
        "unrolls of compressed actors are learned",
    )
    # int8 weights and a few scales instead of float32 ones
    assert line["compressor_artifact_bytes"] < 0.3 * 4 * 11_900
    run.finish()


def test_predictors_answer_with_artifacts_too(system: System) -> None:
    config = system.config(CARTPOLE, compressor=_CHAIN, actors={"inference": "predictor"})
    run = system.train(config)
    run.wait_for(
        lambda: run.last().get("compressed_share") == 1.0, "predictions of artifacts are learned"
    )
    line = run.last()
    assert line["predictor_policy_refused"] == 0.0 < line["predictor_policy_swaps"]
    run.finish()


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (["onnx", {"prune": 0.5}], "prune=0.5: comes after onnx"),
        (["onyx"], "the link 'onyx' is unknown; expected one of"),
        ([{"quantize": "int4"}, "onnx"], "precision 'int4' is unknown"),
        (["int8"], "int8 computes in ONNX Runtime only"),
        ([{"prune": 1.0}, "onnx"], "prune"),
        ([{"distill": "accerl-net1"}, "onnx"], "accerl-net1"),
    ],
)
def test_a_chain_that_cannot_work_is_refused_before_anything_starts(
    system: System, chain: list[Any], words: str
) -> None:
    run = system.train(system.config(CARTPOLE, compressor={"chain": chain}))
    assert run.wait(within_s=30.0) not in (0, None)
    assert words in run.output
    assert "Traceback" not in run.output
    assert not run.folder.exists()
