"""Checks that every runtime answers with the newly loaded weights, against torch.

For fixtures of whole folders, so that no test is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import numpy as np
import torch

from compress import ArtifactRuntime, OnnxRuntime
from compress.graphs.graph_network import GraphNetwork
from compress.methods.quantizer import has_vnni
from compress.runtimes import torch_runtime
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support.integer_policies import integer_parameters

_OBSERVATIONS = 2
#: Largest error against float64, as a share of the largest logit (or of 1), by the format of the
#: computation.
_TOLERANCES = {"fp32": 1e-4, "fp16": 5e-3, "bf16": 5e-2}
_AMP = {None: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
#: Inputs of an int8 policy's last layer that may be one step off: sums between two steps are
#: rounded to either.
_STEPS_APART = 3


def observations_of(architecture):
    """Leaf → images of 4 × 4 blocks, bytes, or normal numbers; constant."""
    return {
        name: _leaf(leaf, convolves=architecture.convolves)
        for name, leaf in architecture.observation.items()
    }


def _leaf(leaf, *, convolves):
    rng, shape = np.random.default_rng(17), leaf.shape
    if leaf.dtype != "uint8":
        return rng.normal(size=(_OBSERVATIONS, *shape)).astype(np.float32)
    if not convolves:
        return rng.integers(0, 256, (_OBSERVATIONS, *shape), np.uint8)
    channels, height, width = shape
    coarse = (_OBSERVATIONS, channels, -(-height // 4), -(-width // 4))
    blocks = rng.integers(0, 256, coarse, np.uint8).repeat(4, axis=2).repeat(4, axis=3)
    return np.ascontiguousarray(blocks[..., :height, :width])


def torch_parameters(graph, tensors, observations):
    """The output of torch's plain layers in float64, from the stored numbers."""
    network = GraphNetwork(graph, with_value=False).load(tensors).double()
    with torch.no_grad():
        return network(*map(torch.from_numpy, observations.values()))[0].numpy()


def expected_of(graph, tensors, computed_in):
    """Observations, their logits, and the largest allowed error."""
    observations = observations_of(graph.architecture)
    if graph.precision == "int8":
        expected = integer_parameters(graph, tensors, observations)
        last = graph.integer_products()[-1].name
        step = tensors[f"{last}.input_scale"] * np.max(tensors[f"{last}.weight_scale"])
        for kept in graph.kept:  # what follows in fp32 makes an error larger
            step = step * np.abs(tensors[f"{kept}.weight"]).sum(1).max()
        return observations, expected, _STEPS_APART * 127 * float(step)
    expected = torch_parameters(graph, tensors, observations)
    size = max(1.0, float(np.abs(expected).max()))
    return observations, expected, _TOLERANCES[computed_in] * size


def _of_artifact(artifact):
    graph = artifact.graph
    # ONNX Runtime only stores half precision and computes in fp32, as torch does without hardware
    # support
    halves = [half for half in ("fp16", "bf16") if torch_runtime.cpu_has(half)]
    in_halves = graph.runtime != "onnx" and graph.precision in halves
    computed_in = graph.precision if in_halves else "fp32"
    return expected_of(graph, artifact.tensors, computed_in)


#: Expected answers of each kind of runtime after a load.
_KINDS = {
    OnnxRuntime: lambda runtime, tensors: expected_of(runtime._given, tensors, "fp32"),
    TorchRuntime: lambda runtime, tensors: expected_of(
        runtime._graph, tensors, _AMP[runtime._amp_dtype]
    ),
    ArtifactRuntime: lambda runtime, artifact: _of_artifact(artifact),
}


def _saturates(given) -> bool:
    """Whether this CPU's int8 products saturate, unlike integers."""
    graph = getattr(given, "graph", None)
    return (
        graph is not None and graph.precision == "int8" and not (graph.reduced_range or has_vnni())
    )


@contextmanager
def swaps_checked() -> Iterator[None]:
    """Checks all loads inside, in any thread; fails at the end if answers differ."""
    wrong: list[str] = []

    def checked(kind, answers_of):
        plain = kind.load

        def load(runtime, given):
            executable = plain(runtime, given)
            if _saturates(given):
                return executable
            observations, expected, tolerance = answers_of(runtime, given)
            worst = float(np.abs(executable.step(observations).parameters - expected).max())
            if not worst <= tolerance:
                wrong.append(
                    f"{kind.__name__}: the loaded weights give logits that are off by {worst:.3g}, "
                    f"allowed are {tolerance:.3g}"
                )
            return executable

        return patch.object(kind, "load", load)

    with ExitStack() as patches:
        for kind, answers_of in _KINDS.items():
            patches.enter_context(checked(kind, answers_of))
        yield
    assert wrong == []
