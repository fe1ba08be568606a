"""torch's exporter: for a user's own modules, and as the oracle of our graphs."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from aclearn.policies import describe_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import ARCHITECTURES, ObservationSpec
from compress import ChainError, OnnxRuntime, PolicyGraph, build_onnx
from compress.export import run_onnx
from compress.graphs.graph_network import GraphNetwork
from compress.modules.export import export_module
from compress.modules.pruning import prune_module
from compress.runtimes.onnx_runtime import load_session
from compress.runtimes.optimised_onnx import Skeleton
from tests.support.acting import Acting, parameters_of
from tests.support.contexts import seen

torch.manual_seed(0)


class Residual(nn.Module):
    """A branch with a sum, and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.policy = nn.Linear(6 * 8 * 8, 5)
        self.value = nn.Linear(6 * 8 * 8, 1)

    def forward(self, x):
        x = torch.relu(self.first(x.float() / 255))
        x = torch.relu(x + self.norm(self.second(x))).flatten(1)
        return self.policy(x), self.value(x).squeeze(1)


def images(count: int, shape=(2, 8, 8), seed=1) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.integers(0, 256, (count, *shape), np.uint8))


def run(model: bytes, **feeds) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


@pytest.fixture
def residual() -> Residual:
    module = Residual()
    with torch.no_grad():
        module.norm.running_mean.normal_()
        module.norm.running_var.uniform_(0.5, 2)
    return module


def test_a_module_of_one_s_own_becomes_a_model_for_any_batch(residual) -> None:
    model = export_module(residual, images(4), outputs=["logits", "values"])
    residual.eval()
    for count in (1, 4, 9):
        x = images(count, seed=count)
        logits, values = run(model, observation=x.numpy())
        with torch.no_grad():
            expected = residual(x)
        np.testing.assert_allclose(logits, expected[0].numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(values, expected[1].numpy(), rtol=1e-4, atol=1e-5)


def test_the_module_stays_in_training_mode(residual) -> None:
    residual.train()
    export_module(residual, images(2))
    assert residual.training and residual.norm.training


def test_a_pruned_module_is_exported_too(residual) -> None:
    pytest.importorskip("torch_pruning")
    residual.eval()
    pruned = prune_module(residual, images(2).float(), 0.5, ignored=["policy", "value"])
    model = export_module(pruned, images(2))
    assert len(model) < 0.6 * len(export_module(residual, images(2)))
    x = images(3, seed=7)
    with torch.no_grad():
        expected = pruned.eval()(x)[0].numpy()
    np.testing.assert_allclose(run(model, observation=x.numpy())[0], expected, rtol=1e-3, atol=1e-5)


def test_a_module_that_branches_on_the_batch_size_is_found() -> None:
    class Branches(nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] == 4 else x

    with pytest.raises(
        ChainError, match=r"differs from torch in output 0 on 6 rows \(does it branch"
    ):
        export_module(Branches(), torch.ones(4, 2))


def test_a_module_for_one_batch_size_is_found() -> None:
    class Freezes(nn.Module):
        def forward(self, x):
            return x.reshape(4, 2)

    with pytest.raises(ChainError, match="Freezes: it does not run on 6 rows"):
        export_module(Freezes(), torch.ones(4, 2))


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_a_batch_size_that_the_exporter_froze_is_found_whatever_the_example_has(rows) -> None:
    class Folds(nn.Module):
        def forward(self, x):
            return x.reshape(int(x.shape[0]), -1) * 2  # a constant to the exporter

    with pytest.raises(ChainError, match=f" {rows + 2} rows"):
        export_module(Folds(), torch.ones(rows, 2, 2))


def test_not_a_number_is_no_small_difference_and_equal_infinities_are_none() -> None:
    class Roots(nn.Module):
        def forward(self, x):
            return torch.sqrt(x)

    class Masks(nn.Module):
        def forward(self, x):
            return torch.where(x > 0, x, torch.tensor(float("-inf")))

    x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    with pytest.raises(ChainError, match="its ONNX graph differs from torch in output 0 on 2 rows"):
        export_module(Roots(), x)
    np.testing.assert_array_equal(
        run(export_module(Masks(), x), observation=x.numpy())[0],
        [[-np.inf, 2.0], [3.0, -np.inf]],
    )


@pytest.mark.parametrize(
    "example",
    [torch.ones(0, 2), torch.tensor(1.0), (torch.ones(2, 2), torch.ones(3, 2)), ()],
    ids=["empty", "number", "uneven", "none"],
)
def test_an_example_without_rows_of_one_number_is_refused(example) -> None:
    with pytest.raises(ChainError, match="Linear: example: expected inputs of one number of rows"):
        export_module(nn.Linear(2, 2), example)


def test_what_torch_cannot_export_is_told() -> None:
    class Strange(nn.Module):
        def forward(self, x):
            return torch.linalg.lstsq(x, x).solution

    with pytest.raises(ChainError, match="Strange: torch cannot export it"):
        export_module(Strange(), torch.eye(3)[None])


def test_names_must_be_as_many_as_tensors(residual) -> None:
    with pytest.raises(ChainError, match=r"expected 2 names of outputs, got 1: \['logits'\]"):
        export_module(residual, images(2), outputs=["logits"])


def test_a_dictionary_is_no_output() -> None:
    class Named(nn.Module):
        def forward(self, x):
            return [{"logits": x}]

    with pytest.raises(ChainError, match="expected a tensor or a tuple of tensors"):
        export_module(Named(), torch.ones(2, 2))


def architectures():
    for name in ARCHITECTURES:
        shape, dtype = ((4,), "float32") if name == "mlp" else ((4, 84, 84), "uint8")
        yield describe_architecture(
            name, observation=ObservationSpec.plain(shape, dtype), actions=6
        )


@pytest.mark.parametrize("architecture", list(architectures()), ids=lambda a: a.name)
def test_our_graphs_compute_what_torch_s_exporter_writes(architecture) -> None:
    network = PolicyNetwork(architecture, seed=3)
    with torch.no_grad():
        network.policy.weight.mul_(50)
    rng = np.random.default_rng(2)
    shape = (5, *architecture.observation.sole.shape)
    images_in = architecture.observation.sole.dtype == "uint8"
    x = rng.integers(0, 256, shape, np.uint8) if images_in else rng.normal(size=shape)
    x = x if images_in else x.astype(np.float32)
    oracle = export_module(network, torch.from_numpy(x), outputs=["logits", "values"])
    expected, _ = run(oracle, observation=x)
    tensors = {n: p.detach().numpy().copy() for n, p in network.named_parameters()}
    policy = Acting(OnnxRuntime(architecture))
    policy.load(tensors)
    np.testing.assert_allclose(policy.parameters(x), expected, rtol=1e-3, atol=1e-4)
    graph = PolicyGraph(architecture, runtime="onnx", static=True)
    executable = load_session(Skeleton(build_onnx(graph)), graph, tensors)
    np.testing.assert_allclose(parameters_of(executable, x), expected, rtol=1e-3, atol=1e-4)
    # and the graph's module, exported too
    module = GraphNetwork(PolicyGraph(architecture), with_value=False).eval()
    load_tensors(module, {n: tensors[n] for n, _ in module.named_parameters()})

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, observations):
            return self.module(observations)[0]

    again = export_module(Logits(), torch.from_numpy(x))
    np.testing.assert_allclose(
        run_onnx(again, seen(x).observations)["parameters"], expected, rtol=1e-3, atol=1e-4
    )
