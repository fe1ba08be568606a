"""The predictor and compressor that an actor asks, as they die, hang and return."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from aclearn.types import Unroll
from aclearn.wire import ActRequest, ArtifactReply, ArtifactRequest, decode
from services.policy.sources import artifact_of
from services.roles import PREDICTOR
from tests.support.architectures import parts_of

_ENDLESS = {"max_updates": 1_000_000}
_PREDICTORS = {
    "actors": {"inference": "predictor", "processes": 2, "unroll_length": 4},
    "predictor": {"processes": 2, "device": "cpu"},
}


def watch(run, kind: type) -> dict[str, set[str]]:
    """Role → the peers that it sends this kind of message; grows during the run."""
    asked: dict[str, set[str]] = defaultdict(set)
    count = run.faults.observe

    def observe(sender, receiver, frames):
        count(sender, receiver, frames)
        if isinstance(decode(frames).message, kind):
            asked[sender].add(receiver)

    run.faults.observe = observe
    return asked


def goes_on(run, learned, batches: int = 10) -> None:
    enough = len(learned) + batches
    run.run_until(lambda: len(learned) >= enough, f"{batches} more batches are learned")


def test_an_actor_follows_its_predictor_through_a_restart_and_leaves_one_that_hangs(
    start, learned
) -> None:
    run = start(run=_ENDLESS, **_PREDICTORS)
    asked = watch(run, ActRequest)
    own = {"actor-0": {"predictor-0"}, "actor-1": {"predictor-1"}}
    goes_on(run, learned)
    assert asked == own
    run.kill("predictor-0")
    run.start(PREDICTOR)
    asked.clear()
    goes_on(run, learned)
    run.run_until(lambda: asked == own, "both ask their own")
    run.suspend("predictor-0")
    at = run.clock.now
    run.run_until(lambda: "predictor-1" in asked["actor-0"], "it goes to the other one")
    # long before the monitor would call it silent, after 60 s
    assert run.clock.now - at < 10.0
    asked.clear()
    goes_on(run, learned)
    assert asked == {"actor-0": {"predictor-1"}, "actor-1": {"predictor-1"}}


_STUDENTS = {
    "chain": [{"distill": {"student": "mlp", "hidden": [8]}}, "onnx"],
    "processes": 2,
    "every_s": 0.125,
}


def test_each_of_two_compressors_has_a_student_and_its_actor_runs_it(start, learned) -> None:
    run = start(run=_ENDLESS, compressor=_STUDENTS)
    asked, students, acted = watch(run, ArtifactRequest), {}, defaultdict(set)
    count = run.faults.observe

    def observe(sender, receiver, frames):
        count(sender, receiver, frames)
        message = decode(frames).message
        if isinstance(message, ArtifactReply) and "distill" in message.chain:
            students[sender] = artifact_of(message)
        elif isinstance(message, Unroll):
            acted[sender] |= set(message.chains)

    run.faults.observe = observe
    student = "distill=mlp-8>onnx"
    run.run_until(
        lambda: all(student in acted[f"actor-{i}"] for i in range(2)), "both act on students"
    )
    assert asked == {f"actor-{i}": {f"compressor-{i}"} for i in range(2)}
    first, second = students["compressor-0"], students["compressor-1"]
    assert first.chain == second.chain == student
    assert parts_of(first.graph.architecture).hidden == (8,)
    # each draws its own first weights
    weights = [each.tensors["hidden.0.weight"] for each in (first, second)]
    assert np.abs(weights[0] - weights[1]).max() > 0.1
    written = len(run.lines())
    run.run_until(lambda: len(run.lines()) > written + 1, "a later line")
    line = run.lines()[-1]
    assert line["compressed_share"] == 1.0
    assert line["actor_policy_refused"] == 0.0 == line["compressor_errors"]
    assert line["compressor_distill_steps"] > 0.0


def test_a_compressor_that_hangs_holds_up_no_other_role(start, learned) -> None:
    # learning shows that actors act, so old policies are allowed
    run = start(
        run=_ENDLESS,
        compressor={"chain": ["int8", "onnx"], "every_s": 0.125},
        trainer={"max_lag_versions": 1_000_000},
    )

    def swaps() -> float:
        heartbeat = run.heartbeats.get("actor-0")  # of an actor without a policy yet: no gauges
        return heartbeat.gauges.get("policy_swaps", 0.0) if heartbeat else 0.0

    run.run_until(lambda: swaps() >= 3, "artifacts are taken")
    run.suspend("compressor-0")
    for _ in range(8):  # messages in flight are received
        run.round()
    before = swaps()
    goes_on(run, learned, 40)
    assert swaps() == before
    run.wake("compressor-0")
    run.run_until(lambda: swaps() >= before + 2, "newer artifacts are taken")
