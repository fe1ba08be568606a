"""Graphs that ONNX Runtime rewrote once: the same answers for every version, and no old weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from aclearn.types import PolicyVersion
from compress import Policy, PolicyGraph, build_onnx, parse_chain
from compress.graphs.onnx_graph import onnx_tensors
from compress.runtimes import optimised_onnx as optimised
from compress.runtimes.graph_cache import GraphCache
from compress.runtimes.onnx_runtime import load_session
from compress.runtimes.optimised_onnx import Skeleton, skeleton_of
from tests.support.acting import parameters_of
from tests.support.architectures import altered
from tests.support.contexts import context_of
from tests.support.pruning_oracle import ARCHITECTURES
from tests.support.random_policies import some_observations, some_tensors

CHAINS = {
    "int8": ["int8", "onnx"],
    "per-channel": [{"quantize": {"precision": "int8", "per_channel": True}}, "onnx"],
    "factored": [{"low_rank": 2}, "int8", "onnx"],
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", ["images", "residual", "flat-with-its-own-value", "flat-uint8"])
def test_a_rewritten_graph_answers_as_the_graph_itself_for_every_version(name, chain) -> None:
    architecture = ARCHITECTURES[name]
    context = context_of(some_observations(architecture, 40))
    link = parse_chain(CHAINS[chain])
    observations = some_observations(architecture, 5, seed=1)
    answers = []
    for version in (1, 2, 3):
        policy = Policy.of(
            architecture, some_tensors(architecture, version), PolicyVersion(0, version)
        )
        artifact = link.compress(policy, context)
        skeleton = skeleton_of(artifact.graph)
        assert skeleton.finished
        plain, rewritten = (
            parameters_of(load_session(made, artifact.graph, artifact.tensors), observations)
            for made in (Skeleton(build_onnx(artifact.graph)), skeleton)
        )
        np.testing.assert_array_equal(plain, rewritten)
        answers.append(rewritten)
    assert min(np.abs(answers[i] - answers[i - 1]).max() for i in (1, 2)) > 1e-3


@pytest.mark.parametrize("name", ["images", "residual", "flat-shared"])
def test_a_rewritten_graph_carries_no_weights(name) -> None:
    graph = PolicyGraph(ARCHITECTURES[name], precision="int8")
    model = onnx.load_model_from_string(skeleton_of(graph).model)
    external = {
        tensor.name: tuple(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.data_location == onnx.TensorProto.EXTERNAL
    }
    assert external == {name: spec.shape for name, spec in onnx_tensors(graph).items()}
    for tensor in model.graph.initializer:
        if tensor.name not in external:  # the zero points of symmetric weights
            assert not onnx.numpy_helper.to_array(tensor).any()


def test_a_new_layout_of_weights_is_left_to_the_sessions() -> None:
    graph = PolicyGraph(ARCHITECTURES["images"])
    assert skeleton_of(graph) == Skeleton(build_onnx(graph), finished=False)
    # not only because of the precision: eight channels of float weights are laid out in blocks
    graph = PolicyGraph(altered(ARCHITECTURES["images"], observation_shape=(8, 9, 9)))
    found = [
        optimised._rewritten(build_onnx(graph), optimised._numbers(graph, start))
        for start in (1, 2)
    ]
    assert found[0] is None or found[0] != found[1]


def test_a_graph_that_depends_on_the_weights_is_not_kept(monkeypatch) -> None:
    graph = PolicyGraph(ARCHITECTURES["images"], precision="int8")

    def equal_numbers(graph, start):
        return {
            name: np.full(spec.shape, 3, spec.dtype) for name, spec in onnx_tensors(graph).items()
        }

    monkeypatch.setattr(optimised, "_numbers", equal_numbers)
    assert not skeleton_of(graph).finished  # of equal scales one was kept
    monkeypatch.undo()
    answers = iter([b"one", b"another"])
    monkeypatch.setattr(optimised, "_rewritten", lambda plain, tensors: next(answers))
    assert skeleton_of(graph) == Skeleton(build_onnx(graph), finished=False)


def test_a_graph_whose_weights_were_replaced_under_their_names_is_not_kept(monkeypatch) -> None:
    graph = PolicyGraph(ARCHITECTURES["images"], precision="int8")
    load = onnx.load_model

    def load_with_another_bias(path):
        model = load(path)
        weight = next(t for t in model.graph.initializer if t.name == "hidden.0.bias")
        numbers = onnx.numpy_helper.to_array(weight)
        weight.CopyFrom(onnx.numpy_helper.from_array(numbers + 1, weight.name))
        return model

    monkeypatch.setattr("compress.runtimes.optimised_onnx.onnx.load_model", load_with_another_bias)
    assert not skeleton_of(graph).finished


def test_without_a_disk_to_write_to_sessions_do_it_themselves(
    monkeypatch, tmp_path, caplog
) -> None:
    graph = PolicyGraph(ARCHITECTURES["images"], precision="int8")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "not-there"))
    assert skeleton_of(graph) == Skeleton(build_onnx(graph), finished=False)
    assert "event=graph_not_kept" in caplog.text and "not-there" in caplog.text


def test_a_graph_is_rewritten_once(monkeypatch) -> None:
    made = []
    monkeypatch.setattr(
        "compress.runtimes.graph_cache.skeleton_of", lambda graph: made.append(graph) or "kept"
    )
    monkeypatch.setattr("compress.runtimes.graph_cache.load_session", lambda *given, threads: given)
    graph, cache = PolicyGraph(ARCHITECTURES["images"], runtime="onnx"), GraphCache()
    assert [cache.executable(graph, {})[0] for _ in range(3)] == ["kept"] * 3
    assert made == [graph]
