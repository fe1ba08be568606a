"""Actors on compressed policies: the run learns, and a killed compressor stops nobody."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.wire import ArtifactReply, ArtifactRequest, Weights, WeightsRequest
from compress import Artifact, ArtifactRuntime
from services.evaluator.saved_policy import load_policy
from services.runtime.artifact_messages import artifact_of
from tests.support.acting import Acting
from tests.support.architectures import parts_of
from tests.support.system import CARTPOLE, PONG, Run, System
from tests.support.visitor import Visitor

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
    run.wait_for(lambda: run.last()["compressor_artifacts"] > 20, "each has made some")
    # no compression starts within 0.05 s of the last; the first one takes long
    assert run.last()["compressor_artifact_interval_s"] > 0.02
    assert line["compressor_errors"] == 0.0 <= line["compressor_uncompressed_artifacts"]
    assert line["actor_policy_refused"] == 0.0 < line["actor_policy_swaps"]
    parts = run.last()["part_seconds"]["compressor"]
    assert parts.keys() >= {"wire", "pull", "compress", "encode", "waiting for requests", "total"}
    assert run.last()["wait_share"]["compressor"].keys() == {"requests", "working"}
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
    # the other one has no reason to move
    assert re.findall(r"role=compressor name=(\S+)", run.log("actor-1"))[-1] == "compressor-1"
    summary = run.finish()
    assert summary["generation"] == 0


def _swaps(run: Run) -> float:
    """How often an actor has taken another policy, the mean over all of them."""
    return float(run.last().get("actor_policy_swaps", 0.0))


def _newer_policies_act(run: Run) -> None:
    """Actors take artifacts of weights that are not there yet."""
    before, swaps = run.last(), _swaps(run)
    _compressed(run, beyond=before["policy_version"])
    # one each may have been on its way before
    run.wait_for(lambda: _swaps(run) >= swaps + 2, "actors take newer artifacts")


def test_a_compressor_that_is_suspended_holds_up_no_other_role(system: System) -> None:
    run = system.train(
        system.config(
            CARTPOLE,
            compressor=_CHAIN,
            # what is learned shall say that actors act, however old their policy has become
            trainer={"max_lag_versions": 1_000_000},
        )
    )
    run.wait_until_learning(beyond=300)
    _newer_policies_act(run)
    pids = run.pids()
    compressor = pids["compressor-0"]
    written = len(run.lines())
    os.kill(compressor, signal.SIGSTOP)
    try:
        # by the fourth line, three quarters of a second, what was on its way has been taken
        run.wait_for(lambda: len(run.lines()) >= written + 4, "four more lines")
        before = run.last()
        after = run.wait_until_learning(beyond=before["learned_steps"] + 500)
        assert after["policy_version"] > before["policy_version"]
        assert after["actor_policy_swaps"] == before["actor_policy_swaps"] > 0.0
    finally:
        os.kill(compressor, signal.SIGCONT)
    _newer_policies_act(run)
    assert run.pids() == pids
    line = run.last()
    assert line["actor_policy_refused"] == 0.0 == line["compressor_errors"]
    run.finish()


def test_each_of_two_compressors_has_a_student_and_its_actor_runs_it(
    system: System, visit: Callable[..., Visitor]
) -> None:
    chain = [{"distill": {"student": "mlp", "hidden": [8]}}, "onnx"]
    compressor = _CHAIN | {"chain": chain, "processes": 2}
    trainer = {"max_lag_versions": 1_000_000}  # nothing is too old to be seen
    run = system.train(system.config(CARTPOLE, compressor=compressor, trainer=trainer))
    run.wait_until_learning()  # the start, with torch in three processes, has a deadline of its own
    _newer_policies_act(run)  # and both compress, or the mean would not be 1
    visitor = visit(run.monitor_address())
    students = {}
    for peer in visitor.peers().peers:
        if peer.role == "compressor":
            client = visitor.connect(peer.endpoints["artifacts"])
            reply = visitor.ask(client, ArtifactRequest(-1, -1), ArtifactReply)
            students[peer.name] = artifact_of(reply)
    first, second = students["compressor-0"], students["compressor-1"]
    for student in (first, second):
        assert student.chain == "distill=mlp-8>onnx"
        assert parts_of(student.graph.architecture).hidden == (8,)
    # each draws its own first weights
    weights = [student.tensors["hidden.0.weight"] for student in (first, second)]
    assert np.abs(weights[0] - weights[1]).max() > 0.1
    version = run.last()["policy_version"]
    run.wait_for(
        lambda: all(_acted_by_students(line, version) for line in run.lines()[-8:]),
        "neither actor is left behind",
    )
    for index in (0, 1):
        log = run.log(f"actor-{index}")
        asked = re.findall(r"time=(\S+ \S+) .*role=compressor name=(\S+)", log)
        own = [name for _, name in asked].index(f"compressor-{index}")
        assert own <= 1  # the other one is asked only as long as its own is not there yet
        # it leaves a compressor only after ten seconds of silence, or five without a connection
        times = [datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f") for at, _ in asked[own:]]
        assert all((later - at).total_seconds() >= 5.0 for at, later in pairwise(times))
    line = run.last()
    assert line["actor_policy_refused"] == 0.0 == line["compressor_errors"]
    assert line["compressor_distill_steps"] > 0.0
    run.finish()


def _acted_by_students(line: dict[str, Any], version: int) -> bool:
    """Whether the last batch is of steps on artifacts newer than `version` alone."""
    newer = line["policy_version"] - line["lag_max"] > version
    return newer and line.get("compressed_share") == 1.0


def test_predictors_answer_with_artifacts_too_and_unrolls_name_the_chain(system: System) -> None:
    run = system.train(system.config(PONG, compressor=_CHAIN, actors={"inference": "predictor"}))
    run.wait_for(
        lambda: run.last().get("compressed_share") == 1.0, "predictions of artifacts are learned"
    )
    line = run.last()
    assert line["predictor_policy_refused"] == 0.0 < line["predictor_policy_swaps"]
    # int8 weights and a few scales instead of float32 ones
    assert line["compressor_artifact_bytes"] < 0.3 * 4 * 11_900
    run.finish()


def test_artifacts_compute_what_torch_does_of_the_weights_of_their_version(
    system: System, visit: Callable[..., Visitor]
) -> None:
    compressor = _CHAIN | {"chain": ["fuse", "onnx"]}
    actors, trainer = {"unroll_length": 40}, {"max_lag_versions": 1_000_000}  # few versions
    run = system.train(system.config(PONG, compressor=compressor, actors=actors, trainer=trainer))
    _compressed(run)
    visitor = visit(run.monitor_address())
    endpoints = visitor.endpoints()
    trainers, compressors = (visitor.connect(endpoints[name]) for name in ("weights", "artifacts"))
    weights: dict[int, Weights] = {}
    artifacts: dict[int, Artifact] = {}

    def look() -> set[int]:
        given = visitor.ask(trainers, WeightsRequest(-1, -1), Weights)
        weights[given.version] = given
        artifact = artifact_of(visitor.ask(compressors, ArtifactRequest(-1, -1), ArtifactReply))
        artifacts[artifact.at.version] = artifact
        return weights.keys() & artifacts.keys()

    run.wait_for(lambda: len(look()) >= 3, "weights and artifacts of the same three versions")
    run.finish()

    architecture = load_policy(run.folder).architecture
    runtime, network = Acting(ArtifactRuntime(architecture)), PolicyNetwork(architecture)
    screens = np.random.default_rng(0).integers(0, 256, (4, 4, 84, 84), np.uint8)

    def computed(version: int) -> NDArray[Any]:
        load_tensors(network, weights[version].tensors)
        with torch.no_grad():
            return np.asarray(network(torch.from_numpy(screens))[0])

    versions = sorted(weights.keys() & artifacts.keys())
    for version in versions:
        runtime.load(artifacts[version])
        np.testing.assert_allclose(runtime.parameters(screens), computed(version), atol=2e-6)
    # and those of any other version would have been told from them
    for version, other in pairwise(versions):
        assert np.abs(computed(version) - computed(other)).max() > 2e-5
