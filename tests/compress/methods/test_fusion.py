"""Fusion: fewer steps, the same function."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from aclearn.policies import Convolution, ResidualSection, build_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import ObservationSpec, PolicyVersion
from compress import (
    ONNX,
    ArtifactRuntime,
    ChainError,
    CompressorChain,
    Context,
    Fusion,
    LowRank,
    Policy,
    build_onnx,
    check_compressor,
    parse_chain,
)
from compress.export import export_onnx
from compress.graphs.graph_network import GraphNetwork
from compress.graphs.policy_graph import PolicyGraph
from compress.modules.fusion import fold_batch_norm, fold_normalisation, fuse_module
from tests.support.acting import Acting
from tests.support.architectures import altered
from tests.support.contexts import context_of
from tests.support.random_policies import some_observations, some_tensors

IMAGES = build_architecture(
    "images", ObservationSpec.plain((3, 8, 8), "uint8"), 3, (Convolution(6, 4, 2),), (10,)
)
BYTES = build_architecture(
    "bytes", ObservationSpec.plain((6,), "uint8"), 3, (), (9, 8), "tanh", separate_value=True
)
FLAT = altered(BYTES, observation_dtype="float32")
ARCHITECTURES = {
    "images": IMAGES,
    "images-without-hidden": altered(IMAGES, hidden=()),
    "residual": altered(IMAGES, convolutions=(), sections=(ResidualSection(4, (4,)),)),
    "images-with-their-own-value": altered(IMAGES, separate_value=True),
    "bytes-with-their-own-value": BYTES,
    "bytes-shared": altered(BYTES, separate_value=False),
    "bytes-without-hidden": altered(BYTES, hidden=()),
    "bytes-without-hidden-shared": altered(BYTES, hidden=(), separate_value=False),
}


def reference(architecture, tensors, observations):
    """Logits and values of the uncompressed policy's module, in float64."""
    network = PolicyNetwork(architecture, seed=0)
    load_tensors(network, tensors)
    network = network.double()
    with torch.no_grad():
        logits, values = network(torch.from_numpy(observations))
    return logits.numpy(), values.numpy()


def compress(link, architecture, tensors):
    policy, context = Policy.of(architecture, tensors), Context()
    context.begin(policy)
    return link.compress(policy, context)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_raw_pixels_give_the_same_parameters_and_values(name) -> None:
    architecture = ARCHITECTURES[name]
    tensors = some_tensors(architecture, 1)
    result = compress(Fusion(), architecture, tensors)
    assert result.graph == replace(PolicyGraph(architecture), scale_folded=True)
    assert all(scale.factor == 1.0 for scale in result.graph.raw_products().values())
    observations = some_observations(architecture, 6)
    expected = reference(architecture, tensors, observations)
    with torch.inference_mode():
        answers = GraphNetwork(result.graph).load(result.tensors)(torch.from_numpy(observations))
    for answer, wanted in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_a_factored_first_layer_is_folded_in_one_half() -> None:
    architecture = altered(BYTES, hidden=(9, 8))
    policy, context = Policy.of(architecture, some_tensors(architecture, 2)), Context()
    context.begin(policy)
    factored = LowRank(3).compress(policy, context)
    result = Fusion().compress(factored, context)
    assert dict(result.graph.ranks)["hidden.0"] == 3
    observations = torch.from_numpy(some_observations(architecture, 6))
    with torch.inference_mode():
        expected = GraphNetwork(factored.graph).load(factored.tensors)(observations)
        answers = GraphNetwork(result.graph).load(result.tensors)(observations)
    for answer, wanted in zip(answers, expected, strict=True):
        torch.testing.assert_close(answer, wanted, rtol=1e-4, atol=1e-5)


def test_float_observations_have_nothing_to_fold() -> None:
    tensors = some_tensors(FLAT, 3)
    result = compress(Fusion(), FLAT, tensors)
    assert result.graph == PolicyGraph(FLAT)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(result.tensors[name], tensor)


def test_what_is_folded_is_not_folded_again() -> None:
    policy, context = Policy.of(IMAGES, some_tensors(IMAGES, 4)), Context()
    once = Fusion().compress(policy, context)
    twice = Fusion().compress(once, context)
    assert twice.graph == once.graph
    for name, tensor in once.tensors.items():
        np.testing.assert_array_equal(twice.tensors[name], tensor)


def test_the_graph_has_no_multiplication_left() -> None:
    def operators(graph):
        return [node.op_type for node in onnx.load_model_from_string(build_onnx(graph)).graph.node]

    plain = PolicyGraph(IMAGES, runtime="onnx", static=True)
    assert "Mul" in operators(plain)
    assert [op for op in operators(plain) if op != "Mul"] == operators(
        replace(plain, scale_folded=True)
    )


@pytest.mark.parametrize("name", ["images", "flat"])
def test_activations_are_part_of_the_products_in_the_session_that_acts(
    small, name, tmp_path
) -> None:
    architecture = getattr(small, name)
    chain = CompressorChain().add(Fusion()).add(ONNX())
    artifact = chain.compress(small.policy(architecture), Context())
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    model = export_onnx(artifact, {})
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    left = {node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node}
    assert {"Relu", "Tanh"} & {node.op_type for node in onnx.load_from_string(model).graph.node}
    assert not {"Relu", "Tanh", "Mul", "Add"} & left, left


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (PolicyGraph(IMAGES, precision="bf16"), "fuse: comes after the quantisation to bf16"),
        (PolicyGraph(IMAGES, runtime="onnx", static=True), "fuse: comes after onnx"),
    ],
)
def test_finished_graphs_are_refused(graph, message) -> None:
    with pytest.raises(ChainError, match=message):
        Fusion().plan(graph)


@pytest.mark.parametrize("architecture", [None, IMAGES, BYTES, FLAT], ids=str)
def test_the_link_keeps_the_contract(architecture) -> None:
    check_compressor(Fusion(), architecture)


@pytest.mark.parametrize(
    ("items", "tolerance"),
    [
        (["fuse", "onnx"], 1e-4),
        (["fuse"], 1e-4),
        (["fuse", "torchscript"], 1e-4),
        (["fuse", "fp16", "onnx"], 5e-3),
        (["fuse", "bf16", "onnx"], 0.05),
        (["fuse", "int8", "onnx"], 0.05),
    ],
    ids=str,
)
@pytest.mark.parametrize("architecture", [IMAGES, BYTES], ids=["images", "bytes"])
def test_actors_see_the_new_weights_after_every_version(architecture, items, tolerance) -> None:
    chain = parse_chain(items)
    observations = some_observations(architecture, 30)
    actor, context = Acting(ArtifactRuntime(architecture)), context_of(observations)
    answers = []
    for version in range(3):
        tensors = some_tensors(architecture, version)
        policy = Policy.of(architecture, tensors, PolicyVersion(0, version))
        if "int8" in items:
            context = context_of(observations)  # other weights have other ranges
        artifact = chain.compress(policy, context)
        assert artifact.graph == chain.plan(architecture)
        actor.load(artifact)
        answers.append(actor.parameters(observations))
        expected, _ = reference(architecture, tensors, observations)
        assert np.abs(answers[-1] - expected).max() < tolerance * np.abs(expected).max()
    assert min(np.abs(answers[i] - answers[i - 1]).max() for i in (1, 2)) > 0.2


def random_norm(kind, features, rng, **settings):
    norm = kind(features, **settings).double().eval()
    with torch.no_grad():
        norm.running_mean.copy_(torch.from_numpy(rng.normal(size=features)))
        norm.running_var.copy_(torch.from_numpy(rng.uniform(0.1, 4.0, features)))
        if norm.affine:
            norm.weight.copy_(torch.from_numpy(rng.normal(size=features)))
            norm.bias.copy_(torch.from_numpy(rng.normal(size=features)))
    return norm


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kind", ["dense", "convolution"])
def test_a_folded_batch_normalisation_is_the_layer_and_it(kind, affine, bias) -> None:
    rng = np.random.default_rng(5)
    if kind == "dense":
        layer, x = nn.Linear(5, 4, bias=bias), rng.normal(size=(7, 5))
        norm = random_norm(nn.BatchNorm1d, 4, rng, affine=affine, eps=0.01)
    else:
        layer, x = nn.Conv2d(3, 4, 3, padding=1, bias=bias), rng.normal(size=(2, 3, 6, 6))
        norm = random_norm(nn.BatchNorm2d, 4, rng, affine=affine, eps=0.01)
    layer, x = layer.double(), torch.from_numpy(x)
    weight, folded_bias = fold_batch_norm(
        layer.weight.detach().numpy(),
        layer.bias.detach().numpy() if bias else None,
        norm.running_mean.numpy(),
        norm.running_var.numpy(),
        norm.weight.detach().numpy() if affine else None,
        norm.bias.detach().numpy() if affine else None,
        0.01,
    )
    tensors = torch.from_numpy(weight), torch.from_numpy(folded_bias)
    with torch.no_grad():
        expected = norm(layer(x))
        folded = (
            nn.functional.linear(x, *tensors)
            if kind == "dense"
            else nn.functional.conv2d(x, *tensors, padding=1)
        )
    torch.testing.assert_close(folded, expected, rtol=1e-12, atol=1e-12)


def test_folding_keeps_the_dtype() -> None:
    weight, bias = np.ones((4, 3), np.float32), np.zeros(4, np.float32)
    for results in (
        fold_batch_norm(weight, bias, np.zeros(4), np.ones(4)),
        fold_normalisation(weight, bias, 1.0, 2.0),
    ):
        assert [array.dtype for array in results] == [np.float32, np.float32]


@pytest.mark.parametrize("mean", [0.3, [0.5, -1.0, 2.0]])
def test_a_folded_normaliser_is_it_and_the_layer(mean) -> None:
    rng = np.random.default_rng(6)
    std = 0.5 if isinstance(mean, float) else np.array([0.1, 3.0, 1.0])
    weight, bias = rng.normal(size=(4, 3)), rng.normal(size=4)
    x = rng.normal(size=(6, 3))
    folded, moved = fold_normalisation(weight, bias, np.asarray(mean), std)
    expected = ((x - mean) / std) @ weight.T + bias
    np.testing.assert_allclose(x @ folded.T + moved, expected, rtol=1e-12)

    kernel, images = rng.normal(size=(4, 3, 2, 2)), rng.normal(size=(2, 3, 5, 5))
    folded, moved = fold_normalisation(kernel, None, np.asarray(mean), std)
    by_channel = np.broadcast_to(mean, 3)[:, None, None], np.broadcast_to(std, 3)[:, None, None]
    normal = torch.from_numpy((images - by_channel[0]) / by_channel[1])
    torch.testing.assert_close(
        nn.functional.conv2d(
            torch.from_numpy(images), torch.from_numpy(folded), torch.from_numpy(moved)
        ),
        nn.functional.conv2d(normal, torch.from_numpy(kernel)),
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda w: fold_batch_norm(w, None, np.zeros(3), np.ones(4)),
            r"mean: expected shape \(4,\), got \(3,\)",
        ),
        (lambda w: fold_batch_norm(w, np.zeros(1), np.zeros(4), np.ones(4)), "bias: expected"),
        (lambda w: fold_batch_norm(w, None, np.zeros(4), -np.ones(4)), "variance: expected more"),
        (
            lambda w: fold_batch_norm(w, None, np.zeros(4), np.full(4, np.nan)),
            "variance: expected more",
        ),
        (lambda w: fold_normalisation(w, None, np.zeros(4), np.ones(3)), "mean: expected shape"),
        (lambda w: fold_normalisation(w, None, 0.0, 0.0), "std: expected more than 0"),
        (lambda w: fold_normalisation(w, None, 0.0, np.array([1.0, -1.0, 1.0])), "std: expected"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call(np.ones((4, 3)))


class Residual(nn.Module):
    """Convolutions with normalisations, a sum, and a head with one."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(7)
        self.enter = nn.Conv2d(2, 4, 3, bias=False)
        self.enter_norm = random_norm(nn.BatchNorm2d, 4, rng)
        self.inner = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1), random_norm(nn.BatchNorm2d, 4, rng), nn.ReLU()
        )
        self.sum_norm = random_norm(nn.BatchNorm2d, 4, rng, affine=False)
        self.hidden = nn.Linear(4 * 16, 5)
        self.hidden_norm = random_norm(nn.BatchNorm1d, 5, rng, affine=False)
        self.policy = nn.Linear(5, 3)

    def forward(self, x):
        x = torch.relu(self.enter_norm(self.enter(x)))
        x = self.sum_norm(x + self.inner(x))
        return self.policy(torch.relu(self.hidden_norm(self.hidden(x.flatten(1)))))


def norms_in(module):
    return [name for name, part in module.named_modules() if "BatchNorm" in type(part).__name__]


def test_a_module_is_fused_where_a_normalisation_follows_a_layer() -> None:
    torch.manual_seed(8)
    module = Residual().double().eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    x = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    fused = fuse_module(module, x)
    assert norms_in(fused) == ["sum_norm"]  # a sum is before it
    with torch.no_grad():
        torch.testing.assert_close(fused(x), module(x), rtol=1e-10, atol=1e-10)
    assert len(norms_in(module)) == 4
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])


class Shared(nn.Module):
    """Not fusible: a layer with two readers, a layer called twice, no statistics."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(9)
        self.read_twice, self.called_twice, self.last, self.read = (
            nn.Linear(4, 4) for _ in range(4)
        )
        self.norms = nn.ModuleList(random_norm(nn.BatchNorm1d, 4, rng) for _ in range(4))
        self.batch = nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x):
        first = self.read_twice(x)
        x = self.norms[0](first) + first
        x = self.norms[1](self.called_twice(x)) + self.called_twice(x)
        x = self.norms[2](self.read(x)) * self.read.weight.sum()
        x = self.norms[3](self.norms[3](x))
        return self.batch(self.last(x))


def test_what_something_else_reads_stays_as_it_is() -> None:
    torch.manual_seed(10)
    module = Shared().double().eval()
    x = torch.randn(6, 4, dtype=torch.float64)
    fused = fuse_module(module, (x,))
    assert sorted(norms_in(fused)) == ["batch", "norms.0", "norms.1", "norms.2", "norms.3"]
    with torch.no_grad():
        torch.testing.assert_close(fused(x), module(x))


def test_hooks_keep_a_pair_apart() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    assert norms_in(fuse_module(module)) == []
    module[0].register_forward_hook(lambda part, inputs, output: 2 * output)
    assert norms_in(fuse_module(module)) == ["1"]


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_modules_that_cannot_be_fused_are_refused() -> None:
    with pytest.raises(ValueError, match="inner is in training mode; call"):
        module = Residual().eval()
        module.inner.train()
        fuse_module(module)
    with pytest.raises(ValueError, match=r"torch\.fx cannot trace it: .*control flow"):
        fuse_module(Branching().eval())
    # [N, 3, 3] into a Linear: the normalisation is over another axis than the weights
    rng = np.random.default_rng(11)
    module = nn.Sequential(nn.Linear(3, 3), random_norm(nn.BatchNorm1d, 3, rng)).double().eval()
    with pytest.raises(ValueError, match="gives another output for the example"):
        fuse_module(module, torch.randn(4, 3, 3, dtype=torch.float64))
