"""Saved policies with a memory, compressed and exported: compared along sequences."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import aclearn
from compress import RefusedArtifact
from services.commands import export as exporting
from services.commands.compress import compress_run
from services.commands.offline_compression import chain_of_words, compress_with, visit_run
from services.evaluator.play import play, players_of
from services.evaluator.saved_policy import load_run
from tests.support.saved_runs import save_run

_ENV = {"id": "aclearn.envs.memory_tasks:cartpole_without_velocities"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("services.commands.offline_compression._OBSERVATIONS", 128)
    memory = {"kind": "gru", "size": 8}
    return save_run(tmp_path, _ENV, policy={"memory": memory, "separate_value": False})


@pytest.mark.parametrize(
    ("chain", "remembers"),
    [("", True), ("prune=0.5,int8", True), ("distill: {student: mlp, memory: false}", False)],
)
def test_an_exported_chain_has_the_state_of_its_graph(
    run: Path, tmp_path: Path, chain: str, remembers: bool
) -> None:
    to = tmp_path / "policy.onnx"
    artifact = aclearn.export(run, to, chain=chain)
    session = onnxruntime.InferenceSession(str(to), providers=["CPUExecutionProvider"])
    parts = json.loads(session.get_modelmeta().custom_metadata_map["state"])
    assert [part["units"] for part in parts] == list(artifact.graph.state)
    assert len(parts) == remembers
    inputs = {each.name: each.shape for each in session.get_inputs()}
    outputs = {each.name: each.shape for each in session.get_outputs()}
    for part in parts:
        assert inputs[part["input"]] == outputs[part["output"]] == ["N", part["units"]]
    assert len(inputs) == 1 + len(parts)
    assert artifact.fidelity.observations > 0


def test_a_model_that_keeps_another_state_is_not_written(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = exporting.export_onnx

    def forgets(*given: Any, **keywords: Any) -> bytes:
        model = onnx.load_model_from_string(export(*given, **keywords))
        (last,) = [node for node in model.graph.node if node.output[0] == "next_state_0"]
        last.input[0] = "state_0"
        serialised: bytes = model.SerializeToString()
        return serialised

    monkeypatch.setattr(exporting, "export_onnx", forgets)
    with pytest.raises(RefusedArtifact, match=r"output is off by .*it was not written"):
        aclearn.export(run, tmp_path / "policy.onnx")


def test_a_policy_and_an_artifact_of_another_state_are_compared_from_zeros(run: Path) -> None:
    saved = load_run(run)
    visited = visit_run(saved, "default")
    found = []
    for number in (0.0, 1.0):
        state = tuple(np.full_like(part, number) for part in visited.others.state)
        halves = visited._replace(others=replace(visited.others, state=state))
        chain = chain_of_words([{"prune": 0.5}, "onnx"])
        artifact, _ = compress_with(saved.policy(None), chain, halves, 1)
        found.append(artifact.fidelity.kl_mean)
    assert found[0] == pytest.approx(found[1], rel=1e-6) and found[0] > 0.0


def test_ways_to_run_it_are_compared_with_a_state_of_their_own(run: Path) -> None:
    torch, exact, int8 = compress_run(run, "int8", episodes=2)
    assert torch.artifact.fidelity.kl_max < 1e-6 and exact.artifact.fidelity.kl_max < 1e-6
    assert 0.0 < int8.artifact.fidelity.kl_max < 0.1
    saved = load_run(run)
    players = players_of(saved, greedy=True)
    expected = play(saved, players, episodes=2, seed=1_000_003)["default"].returns
    assert torch.returns == exact.returns == expected
    assert np.isfinite(int8.returns).all()
