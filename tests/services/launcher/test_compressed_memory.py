"""Whole runs of a policy with a memory whose actors run compressed policies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from aclearn.types import Unroll
from aclearn.wire import decode
from tests.support.whole_run import WholeRun

_POLICY = {"architecture": "mlp", "hidden": [16], "memory": {"kind": "lstm", "size": 16}}
_STUDENT = {"student": "mlp", "hidden": [8], "steps": 32}
#: Links → whether their memory is the policy's.
_CHAINS = {
    "prune=0.5>int8>onnx": ([{"prune": 0.5}, {"int8": {"reduced_range": False}}, "onnx"], False),
    "int8>onnx": ([{"int8": {"reduced_range": False}}, "onnx"], True),
    "distill=mlp-8>onnx": ([{"distill": _STUDENT}, "onnx"], False),
}


@pytest.mark.parametrize("chain", _CHAINS)
def test_actors_swap_artifacts_that_stay_near_along_sequences(tmp_path: Path, chain: str) -> None:
    links, keeps = _CHAINS[chain]
    run = WholeRun(
        tmp_path,
        run={"max_updates": 16, "metrics_every_s": 0.5},
        policy=_POLICY,
        actors={"processes": 2, "envs_per_group": 2, "unroll_length": 8, "original_share": 0.25},
        compressor={"chain": links, "every_s": 0.125, "fidelity_every": 1},
    )
    acted: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    count = run.faults.observe

    def observe(sender: str, receiver: str, frames: list[bytes]) -> None:
        message = decode(frames).message
        if isinstance(message, Unroll):
            acted.update(message.steps_by_chain())
            if len(message.chains) == 1:
                sums[message.chains[0]] += float(np.abs(message.state[0]).sum())
        count(sender, receiver, frames)

    run.faults.observe = observe
    run.run()  # which checks the account each round
    assert run.summary()["updates"] == 16
    assert not run.refused
    assert set(acted) == {chain, "fuse>onnx"} and min(acted.values()) > 50
    # what only an artifact remembers is no state of the policy
    assert sums["fuse>onnx"] > 0 and (sums[chain] > 0) == keeps
    told = run.heartbeats["compressor-0"]
    assert told.counters["artifacts"] > 5
    assert {n: c for n, c in told.counters.items() if n.startswith("errors") and c} == {}
    distances = [line["compressor_kl_mean"] for line in run.lines() if "compressor_kl_mean" in line]
    assert len(distances) > 2 and 0.0 < max(distances) < 0.05
    for actor in ("actor-0", "actor-1"):
        gauges = run.heartbeats[actor].gauges
        assert gauges["policy_swaps"] > 5 and gauges["policy_refused"] == 0
        assert (gauges["state_restarts"] > 0) == (not keeps)
