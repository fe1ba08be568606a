"""Policies with a memory: what links make of them, and how far it is, along sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from aclearn.distributions import distribution_of
from aclearn.policies import Architecture, Layer
from aclearn.types import OBSERVATION, ActionSpec, ObservationSpec
from compress import (
    ArtifactRuntime,
    ChainError,
    Context,
    RefusedArtifact,
    parse_chain,
)
from compress.graphs.int8_reference import IntegerExecutable
from compress.methods.quantizer import Quantizer, activation_ranges
from tests.support.sequences import (
    recurrent,
    remembering,
    sequences,
    step_of,
    torch_step,
    walked,
)

_KINDS = pytest.mark.parametrize("kind", ["lstm", "gru"])


def _compressed(words, policy, visited, held_out=None):
    context = Context(visited, held_out if held_out is not None else visited, seed=3)
    artifact = parse_chain(words).compress(policy, context)
    return artifact, ArtifactRuntime(policy.graph.architecture).load(artifact)


#: How far a link may be from the policy after many steps, as a share of the largest parameter.
_WITHIN = {
    "fuse>onnx": 1e-4,
    "fp16>onnx": 5e-3,
    "bf16>onnx": 5e-2,
    "fuse>int8>onnx": 0.15,
    "int8-channels>onnx": 0.15,
    "low_rank>onnx": 1e-4,
    "low_rank>int8>onnx": 0.2,
}
_WORDS = {
    "int8-channels": {"int8": {"per_channel": True}},
    # of matrices that have this rank
    "low_rank": {"low_rank": {"rank": 3, "layers": ["memory.0.input", "memory.0.recurrent"]}},
}


def _of_rank(policy, rank):
    tensors = dict(policy.tensors)
    for name in ("memory.0.input.weight", "memory.0.recurrent.weight"):
        left, values, right = np.linalg.svd(tensors[name], full_matrices=False)
        tensors[name] = (left[:, :rank] * values[:rank]) @ right[:rank]
    return replace(policy, tensors=tensors)


@_KINDS
@pytest.mark.parametrize("preset", ["mlp", "small-cnn"])
@pytest.mark.parametrize("chain", _WITHIN)
def test_a_link_keeps_to_the_policy_along_a_sequence(kind, preset, chain) -> None:
    policy = _of_rank(remembering(recurrent(kind, preset=preset)), 3)
    visited, played = (sequences(policy.graph.architecture, seed=i, length=20) for i in (1, 2))
    words = [_WORDS.get(word, word) for word in chain.split(">")]
    artifact, executable = _compressed(words, policy, visited)
    expected, found = (walked(step, played) for step in (torch_step(policy), step_of(executable)))
    within = _WITHIN[chain] * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=within)
    # which an answer without the memory would not do
    forgetful = walked(lambda leaves, _: step_of(executable)(leaves, ()), played)
    assert np.abs(forgetful - expected).max() > 0.2 * np.abs(expected).max()
    if artifact.graph.precision == "int8":
        exact = IntegerExecutable(artifact.graph, artifact.tensors)
        integers = walked(step_of(exact), played)
        # sums between two steps may be rounded to either, and states carry that on
        np.testing.assert_allclose(found, integers, rtol=0, atol=0.03 * np.abs(integers).max())
        assert np.median(np.abs(found - integers)) < 1e-4 * np.abs(integers).max()


@_KINDS
@pytest.mark.parametrize(("link", "keeps"), [("int8", True), ({"prune": 0.5}, False)])
def test_the_distance_is_that_of_each_policy_s_own_way_through_the_sequences(
    kind, link, keeps
) -> None:
    policy = remembering(recurrent(kind, layers=2))
    architecture = policy.graph.architecture
    rng = np.random.default_rng(5)
    state = tuple(rng.normal(size=(5, 8)).astype(np.float32) for _ in architecture.state)
    held_out = sequences(architecture, count=5, seed=2, state=state)
    masks = np.ones((len(held_out), 4), np.bool_)
    masks[::3, 1] = False
    held_out = replace(held_out, masks=masks)
    artifact, executable = _compressed([link, "onnx"], policy, sequences(architecture), held_out)
    distribution = distribution_of(architecture.action_spec)
    # what the policy remembers means nothing to a pruned one: both begin with zeros then
    before = state if keeps else ()
    original, found = (
        distribution.mask(walked(step, held_out, before), masks[held_out.valid])
        for step in (torch_step(policy), step_of(executable))
    )
    expected = distribution.kl(original, found)
    assert artifact.fidelity.observations == np.count_nonzero(held_out.valid) < len(held_out)
    assert artifact.fidelity.kl_mean == pytest.approx(float(expected.mean()), rel=1e-3)
    assert artifact.fidelity.kl_max == pytest.approx(float(expected.max()), rel=1e-3)
    assert 0 < artifact.fidelity.kl_mean < (0.05 if keeps else 1.0)


@_KINDS
def test_ranges_are_calibrated_on_the_states_of_the_sequences(kind) -> None:
    policy = remembering(recurrent(kind))
    visited = sequences(policy.graph.architecture)
    ranges = activation_ranges(policy, visited, Quantizer().plan(policy.graph))
    states, step = [], torch_step(policy)

    def noted(leaves, state):
        states.append(state[0] if state else torch.zeros(1, 8))
        return step(leaves, state)

    walked(noted, visited)
    met = torch.cat(states)[torch.from_numpy(visited.valid)]
    expected = float(met.min()), float(met.max())
    assert ranges["memory.0.recurrent"] == pytest.approx(expected, rel=1e-4)
    assert expected[0] < -0.3 and expected[1] > 0.3


@_KINDS
def test_a_probe_finds_a_memory_that_is_not_the_compressor_s(kind) -> None:
    policy = remembering(recurrent(kind))
    artifact, _ = _compressed(["onnx"], policy, sequences(policy.graph.architecture))
    recurrent_weight = "memory.0.recurrent.weight"  # of no use in the first step
    other = dict(artifact.tensors) | {recurrent_weight: -artifact.tensors[recurrent_weight]}
    bad = replace(artifact, tensors=other)
    with pytest.raises(RefusedArtifact, match="the probe's parameters differ"):
        ArtifactRuntime(policy.graph.architecture).load(replace(bad, digest=bad.computed_digest()))


def test_links_draw_whole_sequences() -> None:
    visited = sequences(recurrent("gru"), count=8, length=5)
    numbered = np.arange(40, dtype=np.float32)[:, None] * np.ones(3, np.float32)
    context = Context(replace(visited, observations={OBSERVATION: numbered}), seed=1)
    for count, expected in ((2, 1), (11, 3), (99, 8)):
        drawn = context.sample("link", count, np.random.default_rng(count))
        rows = drawn.observations[OBSERVATION][:, 0].reshape(expected, 5)
        np.testing.assert_array_equal(rows - rows[:, :1], np.tile(np.arange(5), (expected, 1)))
        assert (rows[:, 0] % 5 == 0).all()
        np.testing.assert_array_equal(drawn.valid, visited.valid[rows.ravel().astype(int)])


@pytest.mark.parametrize("words", [["bf16"], ["fuse", "torchscript"], []])
def test_torch_s_runtimes_keep_the_state_of_an_artifact(words) -> None:
    policy = remembering(recurrent("lstm", preset="small-cnn"))
    visited = sequences(policy.graph.architecture, count=3)
    _, executable = _compressed(words, policy, visited)
    expected, found = (walked(step, visited) for step in (torch_step(policy), step_of(executable)))
    within = (0.1 if words == ["bf16"] else 1e-4) * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=within)


def _elman(function: str = "tanh") -> Architecture:
    """A list of layers of one's own: h' = f(W [x, h])."""
    layers = (
        Layer("input", "scale", (OBSERVATION,)),
        Layer("hidden.0", "dense", ("input",), units=10),
        Layer("hidden.0.relu", "relu", ("hidden.0",)),
        Layer("before", "state", (), units=6, next="kept"),
        Layer("both", "concat", ("hidden.0.relu", "before")),
        Layer("mix", "dense", ("both",), units=6),
        Layer("kept", function, ("mix",)),
        Layer("hidden.1", "dense", ("kept",), units=12),
        Layer("hidden.1.relu", "relu", ("hidden.1",)),
        Layer("policy", "dense", ("hidden.1.relu",), units=4, head=True),
        Layer("value", "dense", ("hidden.1.relu",), units=1, head=True),
    )
    space = ObservationSpec.plain((3,), "float32")
    return Architecture("elman", space, ActionSpec.discrete(4), layers)


@pytest.mark.parametrize("function", ["tanh", "relu"])
@pytest.mark.parametrize(
    ("words", "within"),
    [
        (["int8", "onnx"], 0.15),
        ([{"low_rank": {"rank": 3, "layers": ["mix"]}}, "int8", "onnx"], 0.6),
        ([{"prune": {"sparsity": 0.25, "round_to": 1}}, "onnx"], 0.6),
    ],
)
def test_a_recurrence_of_one_s_own_layers_goes_through_the_links(words, within, function) -> None:
    policy = remembering(_elman(function))
    visited, played = (sequences(policy.graph.architecture, 20, seed=i) for i in (1, 2))
    artifact, executable = _compressed(words, policy, visited)
    # the sum of what is new and what was ties the state's units
    assert artifact.graph.state == (6,)
    expected, found = (walked(step, played) for step in (torch_step(policy), step_of(executable)))
    assert np.abs(found - expected).mean() < within * np.abs(expected).mean()
    if artifact.graph.precision == "int8":  # the state itself stays in float
        exact = walked(step_of(IntegerExecutable(artifact.graph, artifact.tensors)), played)
        assert np.mean(np.abs(found - exact)) < 1e-4 * np.abs(exact).max()


def test_a_named_student_needs_a_memory_whose_kind_is_known() -> None:
    chain = parse_chain([{"distill": {"student": "mlp"}}, "onnx"])
    with pytest.raises(ChainError, match=r"memory is neither an lstm nor a gru.*set memory: false"):
        chain.plan(_elman())
    without = parse_chain([{"distill": {"student": "mlp", "memory": False}}, "onnx"])
    assert without.plan(_elman()).state == ()
