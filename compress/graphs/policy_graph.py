"""Policy graphs: plain data that says how a policy's arithmetic is written.

An `Architecture` says which layers there are; a `PolicyGraph` adds what compression changes beside
their widths. From it follow the names, shapes and dtypes of all tensors, so that an actor can check
an artifact, and build what runs it, without torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclearn.policies import Architecture
from compress.errors import RefusedTensors

Precision = Literal["fp32", "fp16", "bf16", "int8"]
Runtime = Literal["torch", "torchscript", "onnx"]
Tensors = Mapping[str, NDArray[Any]]

PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8")
RUNTIMES: tuple[Runtime, ...] = ("torch", "torchscript", "onnx")
#: Graphs whose layers and digests are kept.
_GRAPHS_REMEMBERED = 64
#: What a weight is stored as. bfloat16 is unknown to numpy: its 16 bits travel as uint16.
_STORED = {"fp32": "float32", "fp16": "float16", "bf16": "uint16"}


class TensorSpec(NamedTuple):
    """Shape and dtype of one tensor."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Layer:
    """One matrix product of the policy with what comes before and after it.

    In order: `input_activation`, product, max-pool, sum, `activation`. A layer with an
    `input_activation` opens a residual block: what it was given, not yet activated, is kept for the
    sum of the next layer that closes a block.

    Attributes:
        name: tensors are called `<name>.weight` and `<name>.bias`.
        weight: `(out, in, k, k)` of a convolution, `(out, in)` of a dense layer.
        stride: of a convolution; 1 for dense layers.
        bias: whether it has one; the first half of a factored layer has none.
        activation: "relu", "tanh", or None.
        padding: zeros on every side of what a convolution reads.
        input_activation: the same of what it reads, where it opens a residual block; else None.
        pooled: whether a 3 × 3 max-pool of stride 2, padded by 1, follows.
        closes_block: whether the input of the residual block is added.
    """

    name: str
    weight: tuple[int, ...]
    stride: int
    bias: bool
    activation: str | None
    padding: int = 0
    input_activation: str | None = None
    pooled: bool = False
    closes_block: bool = False

    @property
    def is_convolution(self) -> bool:
        """Whether the weight has a kernel."""
        return len(self.weight) == 4

    @property
    def has_output_scale(self) -> bool:
        """Whether int8 needs a scale for its output: something else than a product reads that."""
        return self.pooled or self.closes_block


@dataclass(frozen=True)
class PolicyGraph:
    """How a policy is computed: observations → logits.

    Attributes:
        architecture: widths, kernels, observations and actions.
        ranks: factored layers as (name, rank), in order of names: W ≈ up · down.
        scale_folded: images are not divided by 255; the first layer's weights have it in them.
        precision: of the stored tensors; int8 also computes in int8.
        per_channel: int8 scales of the weights are one an output channel, not one a tensor.
        reduced_range: int8 weights use 7 bits, for processors whose multiply-add saturates.
        runtime: what executes it.
        static: a link has made a static graph of it; nothing can change it any more.
    """

    architecture: Architecture
    ranks: tuple[tuple[str, int], ...] = ()
    scale_folded: bool = False
    precision: Precision = "fp32"
    per_channel: bool = False
    reduced_range: bool = False
    runtime: Runtime = "torch"
    static: bool = False

    def layers(self) -> tuple[Layer, ...]:
        """The policy's side in order of execution; the last layer gives the logits."""
        return _layers_of(self)

    def value_layers(self) -> tuple[Layer, ...]:
        """The layers of the value alone; what it shares with the policy is in `layers`."""
        shapes, names = self.architecture.tensor_shapes(), ["value"]
        if self.architecture.separate_value:
            names = [f"value_hidden.{i}" for i in range(len(self.architecture.hidden))] + names
        activation = self.architecture.activation
        return tuple(
            Layer(n, shapes[f"{n}.weight"], 1, True, None if n == "value" else activation)
            for n in names
        )

    def tensors(self, *, with_value: bool = False) -> dict[str, TensorSpec]:
        """Every tensor's name, shape and dtype, in the order in which they travel.

        Args:
            with_value: also those of the value, which only fp32 graphs have.
        """
        specs: dict[str, TensorSpec] = {}
        for layer in (*self.layers(), *(self.value_layers() if with_value else ())):
            out = layer.weight[:1]
            if self.precision == "int8":
                specs[f"{layer.name}.weight"] = TensorSpec(layer.weight, "int8")
                scales = out if self.per_channel else ()
                specs[f"{layer.name}.weight_scale"] = TensorSpec(scales, "float32")
                specs[f"{layer.name}.input_scale"] = TensorSpec((), "float32")
                specs[f"{layer.name}.input_zero"] = TensorSpec((), "uint8")
                if layer.bias:
                    specs[f"{layer.name}.bias"] = TensorSpec(out, "int32")
                if layer.has_output_scale:
                    specs[f"{layer.name}.output_scale"] = TensorSpec((), "float32")
                    specs[f"{layer.name}.output_zero"] = TensorSpec((), "uint8")
                continue
            dtype = _STORED[self.precision]
            specs[f"{layer.name}.weight"] = TensorSpec(layer.weight, dtype)
            if layer.bias:
                specs[f"{layer.name}.bias"] = TensorSpec(out, dtype)
        return specs

    @property
    def input_scale(self) -> float:
        """What observations are multiplied with before the first layer."""
        images = self.architecture.observation_dtype == "uint8"
        return 1.0 / 255.0 if images and not self.scale_folded else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able data; `from_dict` is its inverse."""
        return {**asdict(self), "architecture": self.architecture.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PolicyGraph:
        """The graph that `to_dict` described.

        Raises:
            ValueError, TypeError, KeyError: it describes none.
        """
        graph = cls(
            **{
                **data,
                "architecture": Architecture.from_dict(data["architecture"]),
                "ranks": tuple((str(name), int(rank)) for name, rank in data["ranks"]),
            }
        )
        if graph.precision not in PRECISIONS or graph.runtime not in RUNTIMES:
            raise ValueError(f"unknown precision {graph.precision!r} or runtime {graph.runtime!r}")
        hash(graph)  # a list somewhere inside: TypeError here, not where the graph is looked up
        return graph

    def digest(self) -> str:
        """16 hexadecimal digits that differ when anything but the preset's name differs."""
        return _digest_of(self)

    def with_architecture(self, architecture: Architecture) -> PolicyGraph:
        """The same with other widths."""
        return replace(self, architecture=architecture)


# Every version of a policy asks for these several times, and its graph stays the same.
@lru_cache(maxsize=_GRAPHS_REMEMBERED)
def _digest_of(graph: PolicyGraph) -> str:
    data = graph.to_dict()
    data["architecture"].pop("name")
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=_GRAPHS_REMEMBERED)
def _layers_of(graph: PolicyGraph) -> tuple[Layer, ...]:
    ranks = dict(graph.ranks)
    layers: list[Layer] = []
    for layer in _layers(graph.architecture):
        rank = ranks.get(layer.name)
        layers += [layer] if rank is None else _factored(layer, rank)
    return tuple(layers)


def _layers(architecture: Architecture) -> tuple[Layer, ...]:
    """The policy's side in order of execution, nothing factored."""
    shapes, activation = architecture.tensor_shapes(), architecture.activation

    def plain(name: str, **how: Any) -> Layer:
        given = {"stride": 1, "bias": True, "activation": activation, **how}
        return Layer(name, shapes[f"{name}.weight"], **given)

    layers = [
        plain(f"convolutions.{i}", stride=conv.stride)
        for i, conv in enumerate(architecture.convolutions)
    ]
    for i, section in enumerate(architecture.sections):
        name = f"sections.{i}.convolution"
        layers.append(plain(name, padding=1, pooled=True, activation=None))
        for j in range(len(section.blocks)):
            block = f"sections.{i}.blocks.{j}"
            layers.append(plain(f"{block}.first", padding=1, input_activation=activation))
            second = plain(f"{block}.second", padding=1, closes_block=True, activation=None)
            layers.append(second)
    if architecture.sections:
        layers[-1] = replace(layers[-1], activation=activation)
    layers += [plain(f"hidden.{i}") for i in range(len(architecture.hidden))]
    return (*layers, plain("policy", activation=None))


def _factored(layer: Layer, rank: int) -> list[Layer]:
    """W ≈ up · down as two layers: `down` reads, `up` is followed by what followed the whole."""
    up = (layer.weight[0], rank, *((1,) * (len(layer.weight) - 2)))
    return [
        Layer(
            f"{layer.name}.down",
            (rank, *layer.weight[1:]),
            layer.stride,
            False,
            None,
            padding=layer.padding,
            input_activation=layer.input_activation,
        ),
        Layer(
            f"{layer.name}.up",
            up,
            1,
            True,
            layer.activation,
            pooled=layer.pooled,
            closes_block=layer.closes_block,
        ),
    ]


def check_tensors(graph: PolicyGraph, tensors: Tensors, *, with_value: bool = False) -> None:
    """Raise `RefusedTensors` unless names, shapes and dtypes fit and every number is finite."""
    expected = graph.tensors(with_value=with_value)
    if set(tensors) != set(expected):
        wrong = sorted(set(tensors) ^ set(expected))
        raise RefusedTensors(f"weights: missing or unknown tensors {wrong}")
    for name, spec in expected.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != spec.shape or str(tensor.dtype) != spec.dtype:
            raise RefusedTensors(
                f"weights[{name!r}]: expected {spec.dtype} {spec.shape}, "
                f"got {tensor.dtype} {tensor.shape}"
            )
        if graph.precision == "bf16":
            finite = not bool(((tensor & 0x7F80) == 0x7F80).any())  # an exponent of all ones
        elif tensor.dtype.kind == "f":
            finite = _is_finite(tensor)
        else:
            finite = True
        if not finite:
            raise RefusedTensors(f"weights[{name!r}]: not finite")


def _is_finite(tensor: NDArray[Any]) -> bool:
    if tensor.dtype == np.float32:
        # reads each number once, and is finite unless one of them is not or it overflows
        numbers = tensor.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.dot(numbers, numbers)):
                return True
    # both are NaN where anything is, and neither needs a temporary array of booleans
    return bool(np.isfinite(tensor.max()) and np.isfinite(tensor.min()))


def stored_as_float32(tensor: NDArray[Any], precision: Precision) -> NDArray[np.float32]:
    """A stored fp32, fp16 or bf16 tensor as float32 numbers."""
    if precision == "bf16":
        return (tensor.astype(np.uint32) << 16).view(np.float32)
    return tensor.astype(np.float32, copy=False)
