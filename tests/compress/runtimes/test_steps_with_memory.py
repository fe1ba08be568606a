"""Every runtime of torch continues a state as the network does, of any number of rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.policies import Convolution, build_architecture
from aclearn.policies.cuda_stream import CudaStream
from aclearn.policies.network import PolicyNetwork, load_tensors
from aclearn.types import OBSERVATION, Memory, ObservationSpec
from compress.graphs.policy_graph import PolicyGraph
from compress.runtimes.cuda_runtime import CudaGraphRuntime
from compress.runtimes.torch_runtime import TorchExecutable, TorchRuntime, trace
from tests.compress.runtimes.test_cuda_graphs import CPU, CpuStream
from tests.support.random_policies import some_observations, some_tensors

_SPACES = {
    "flat": (ObservationSpec.plain((3,), "float32"), ()),
    "images": (ObservationSpec.plain((2, 8, 8), "uint8"), (Convolution(4, 4, 2),)),
}


def _executable(name: str, architecture, tensors):
    if name == "torch":
        return TorchRuntime(architecture).load(tensors)
    if name == "torchscript":
        graph = PolicyGraph(architecture)
        given = {name: tensors[name] for name in graph.tensors()}
        return TorchExecutable(graph, given, traced=trace(graph))
    device = torch.device("cuda") if name == "gpu" else CPU
    make = (lambda: CudaStream(device)) if name == "gpu" else CpuStream
    return CudaGraphRuntime(architecture, make, device=device, max_batch=4).load(tensors)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("space", _SPACES)
@pytest.mark.parametrize(
    "name",
    [
        "torch",
        "torchscript",
        "captured",
        pytest.param(
            "gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
        ),
    ],
)
def test_a_runtime_goes_on_with_a_state_as_the_network_does(name, space, kind) -> None:
    observation, convolutions = _SPACES[space]
    architecture = build_architecture(
        "tiny", observation, 3, convolutions, (6,), memory=Memory(kind, 5, 2)
    )
    tensors = some_tensors(architecture, 1)
    network = PolicyNetwork(architecture, seed=0)
    load_tensors(network, tensors)
    executable = _executable(name, architecture, tensors)
    for rows in (6, 3, 1):  # the largest is not captured, the next one is padded
        state, expected_state = (), ()
        for t in range(4):
            seen = some_observations(architecture, rows, seed=10 * rows + t)
            output = executable.step({OBSERVATION: seen}, state)
            with torch.no_grad():
                expected = network.step({OBSERVATION: torch.from_numpy(seen)}, expected_state)
            close = {"rtol": 1e-3, "atol": 1e-4}
            np.testing.assert_allclose(output.parameters, expected.parameters, **close)
            assert [(part.shape, part.dtype) for part in output.state] == [
                ((rows, 5), np.float32) for _ in architecture.state
            ]
            for part, its in zip(output.state, expected.state, strict=True):
                np.testing.assert_allclose(part, its, **close)
            state, expected_state = output.state, expected.state
        begun = executable.step({OBSERVATION: seen})  # zeros again, whatever was before
        zeros = tuple(np.zeros((rows, 5), np.float32) for _ in architecture.state)
        again = executable.step({OBSERVATION: seen}, zeros)
        np.testing.assert_array_equal(begun.parameters, again.parameters)
        assert np.abs(begun.parameters - output.parameters).max() > 1e-3


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_under_bf16_the_state_is_float32_and_near(kind) -> None:
    observation, _ = _SPACES["flat"]
    architecture = build_architecture("tiny", observation, 3, (), (6,), memory=Memory(kind, 5, 1))
    tensors, state = some_tensors(architecture, 1), ()
    exact, rounded = (
        TorchRuntime(architecture, amp_dtype=amp).load(tensors) for amp in (None, torch.bfloat16)
    )
    for t in range(4):
        seen = {OBSERVATION: some_observations(architecture, 3, seed=t)}
        found, expected = rounded.step(seen, state), exact.step(seen, state)
        for part, its in zip(found.state, expected.state, strict=True):
            assert part.dtype == np.float32
            np.testing.assert_allclose(part, its, atol=0.05)
        state = expected.state
