"""Policy graphs: plain data that describes the computation of a policy.

An `Architecture` has the layers; a `PolicyGraph` adds the changes of compression beside their
widths. Names, shapes and dtypes of all tensors follow from it, so that an actor can check an
artifact and build its executable without torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclearn.policies import Architecture, Layer
from aclearn.policies.architecture import POLICY, identity
from aclearn.policies.layers import Shape, factored, needed_by, states, tensor_shapes
from aclearn.types import ObservationSpec
from compress.errors import RefusedTensors

Precision = Literal["fp32", "fp16", "bf16", "int8"]
Runtime = Literal["torch", "torchscript", "onnx"]
Tensors = Mapping[str, NDArray[Any]]

PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8")
RUNTIMES: tuple[Runtime, ...] = ("torch", "torchscript", "onnx")
#: Graphs whose layers and digests are kept.
_GRAPHS_REMEMBERED = 64
#: Stored dtype of weights. numpy has no bfloat16: its 16 bits are stored as uint16.
_STORED = {"fp32": "float32", "fp16": "float16", "bf16": "uint16"}


class TensorSpec(NamedTuple):
    """Shape and dtype of one tensor."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class PolicyGraph:
    """The computation of a policy: observations and state → parameters and next state.

    Attributes:
        ranks: factored layers as (name, rank), in order of names: W ≈ up · down.
        scale_folded: images that products read are not divided; the weights contain the factor.
        precision: of the stored tensors; int8 also computes in int8.
        per_channel: int8 weights have one scale per output channel, not one per tensor.
        kept: products that an int8 graph computes in fp32, in order of names.
        reduced_range: int8 weights use 7 bits, for CPUs whose multiply-add saturates.
        own_state: its memory is not that of the original policy, as a student's: what one remembers
            means nothing to the other.
        static: a link has made a static graph of it; no further link can change it.
    """

    architecture: Architecture
    ranks: tuple[tuple[str, int], ...] = ()
    scale_folded: bool = False
    precision: Precision = "fp32"
    per_channel: bool = False
    kept: tuple[str, ...] = ()
    reduced_range: bool = False
    runtime: Runtime = "torch"
    own_state: bool = False
    static: bool = False

    def layers(self, *, with_value: bool = False) -> tuple[Layer, ...]:
        """Layers in order of execution."""
        return _layers_of(self, with_value)

    def products(self, *, with_value: bool = False) -> tuple[Layer, ...]:
        """The layers that have weights."""
        return tuple(layer for layer in self.layers(with_value=with_value) if layer.is_product)

    def is_integer(self, layer: Layer) -> bool:
        """Whether it computes a layer in int8."""
        return self.precision == "int8" and layer.is_product and layer.name not in self.kept

    def integer_products(self) -> tuple[Layer, ...]:
        """The layers that it computes in int8."""
        return tuple(layer for layer in self.layers() if self.is_integer(layer))

    @property
    def output(self) -> str:
        """The name of the layer that gives the parameters."""
        return f"{POLICY}.up" if POLICY in dict(self.ranks) else POLICY

    @property
    def state(self) -> tuple[int, ...]:
        """Numbers of each part of its state, `[B, n]` each, as `Architecture.state`."""
        return tuple(layer.units for layer in states(self.layers()))

    def keeps_state(self, original: Iterable[int]) -> bool:
        """Whether its state is that of the original policy, whose parts have these numbers."""
        return not self.own_state and self.state == tuple(original)

    @property
    def has_module(self) -> bool:
        """Whether it has a network of the user's own, whose layers are unknown."""
        return any(layer.module is not None for layer in self.layers())

    def weight_shapes(self) -> dict[str, Shape]:
        """The shape of each product's weight, by the layer's name; the value's included."""
        shapes = _shapes_of(self)
        return {
            layer.name: shapes[f"{layer.name}.weight"] for layer in self.products(with_value=True)
        }

    def output_scales(self) -> dict[str, str | None]:
        """The scale by which int8 quantises the output of each product that it computes.

        * "<reader>.input" where such a product reads it, perhaps through a relu, which is then the
          clamp at zero;
        * "<layer>.output", its own, where another kind of layer reads a convolution's output;
        * None where it stays in float: the graph's output, and inputs of tanh and of cells.
        """
        return _output_scales(self)

    def tensors(self, *, with_value: bool = False) -> dict[str, TensorSpec]:
        """Every tensor's name, shape and dtype, in message order; only fp32 graphs have a value."""
        shapes, specs = _shapes_of(self), dict[str, TensorSpec]()
        for layer in self.layers(with_value=with_value):
            if not self.is_integer(layer):
                # int8 saves nothing for the few numbers of other layers; a statistic in half
                # precision would be further from its observations than they are from each other
                dtype = _STORED.get(self.precision, "float32")
                dtype = "float32" if layer.is_normaliser else dtype
                specs |= {name: TensorSpec(shapes[name], dtype) for name in layer.tensor_names}
                continue
            weight, bias = f"{layer.name}.weight", f"{layer.name}.bias"
            specs[weight] = TensorSpec(shapes[weight], "int8")
            scales = (layer.units,) if self.per_channel else ()
            specs[f"{layer.name}.weight_scale"] = TensorSpec(scales, "float32")
            own = f"{layer.name}.output"
            for end in (f"{layer.name}.input", own)[: 1 + self.has_output_scale(layer)]:
                specs[f"{end}_scale"] = TensorSpec((), "float32")
                specs[f"{end}_zero"] = TensorSpec((), "uint8")
            if layer.bias:
                specs[bias] = TensorSpec(shapes[bias], "int32")
        return specs

    def has_output_scale(self, layer: Layer) -> bool:
        """Whether a product's int8 output has a scale of its own."""
        return self.output_scales().get(layer.name) == f"{layer.name}.output"

    def raw_products(self) -> dict[str, Layer]:
        """Each product that reads raw uint8 observations, the value's included → their "scale"."""
        return _raw_products(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able data; `from_dict` is its inverse."""
        return {**asdict(self), "architecture": self.architecture.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PolicyGraph:
        """The inverse of `to_dict`.

        Raises:
            ValueError, TypeError, KeyError: the data describe no graph.
        """
        graph = cls(
            **{
                **data,
                "architecture": Architecture.from_dict(data["architecture"]),
                "ranks": tuple((str(name), int(rank)) for name, rank in data["ranks"]),
                "kept": tuple(map(str, data["kept"])),
            }
        )
        if graph.precision not in PRECISIONS or graph.runtime not in RUNTIMES:
            raise ValueError(f"unknown precision {graph.precision!r} or runtime {graph.runtime!r}")
        hash(graph)  # a list inside raises TypeError here, not where the graph is looked up
        return graph

    def digest(self) -> str:
        """16 hexadecimal digits over everything but the preset's name."""
        return _digest_of(self)

    def with_architecture(self, architecture: Architecture) -> PolicyGraph:
        """The graph with other widths."""
        return replace(self, architecture=architecture)


# Every version needs these several times, and its graph stays the same.
@lru_cache(maxsize=_GRAPHS_REMEMBERED)
def _digest_of(graph: PolicyGraph) -> str:
    data = graph.to_dict()
    data["architecture"] = identity(data["architecture"])
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


@lru_cache(maxsize=_GRAPHS_REMEMBERED)
def _layers_of(graph: PolicyGraph, with_value: bool) -> tuple[Layer, ...]:
    layers = graph.architecture.layers
    if not with_value:
        layers = needed_by(layers, POLICY)
    if graph.scale_folded:
        raw = _readers_of_pixels(graph.architecture.layers, graph.architecture.observation)
        folded = {layer.name for layer in raw.values()}
        layers = tuple(
            replace(layer, factor=1.0) if layer.name in folded else layer for layer in layers
        )
    return factored(layers, dict(graph.ranks))


@lru_cache(maxsize=_GRAPHS_REMEMBERED)
def _raw_products(graph: PolicyGraph) -> dict[str, Layer]:
    return _readers_of_pixels(graph.layers(with_value=True), graph.architecture.observation)


def _readers_of_pixels(layers: Iterable[Layer], observation: ObservationSpec) -> dict[str, Layer]:
    """Products → the "scale" that they read, where products alone read the scaled pixels."""
    layers = tuple(layers)
    found: dict[str, Layer] = {}
    for scale in layers:
        if scale.kind != "scale" or observation[scale.reads[0]].dtype != "uint8":
            continue
        pixels, readers = {scale.name}, list[Layer]()
        for layer in layers:
            if pixels.isdisjoint(layer.reads):
                continue
            if layer.kind in ("flatten", "max_pool"):
                pixels.add(layer.name)
            else:
                readers.append(layer)
        if all(reader.is_product for reader in readers):
            found |= {reader.name: scale for reader in readers}
    return found


@lru_cache(maxsize=_GRAPHS_REMEMBERED)
def _shapes_of(graph: PolicyGraph) -> dict[str, Shape]:
    return tensor_shapes(graph.layers(with_value=True), graph.architecture.observation)


@lru_cache(maxsize=_GRAPHS_REMEMBERED)
def _output_scales(graph: PolicyGraph) -> dict[str, str | None]:
    readers: dict[str, list[Layer]] = {}
    for layer in graph.layers():
        # the next step reads a state's next value
        for name in (*layer.reads, layer.next) if layer.next else layer.reads:
            readers.setdefault(name, []).append(layer)

    def scale_of(product: Layer) -> str | None:
        following = readers.get(product.name, [])
        while len(following) == 1 and following[0].kind in ("relu", "flatten"):
            following = readers.get(following[0].name, [])
        if len(following) == 1 and graph.is_integer(following[0]):
            return f"{following[0].name}.input"
        return f"{product.name}.output" if product.kind == "convolution" else None

    return {product.name: scale_of(product) for product in graph.integer_products()}


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
        if spec.dtype == _STORED["bf16"]:
            finite = not bool(((tensor & 0x7F80) == 0x7F80).any())  # an exponent of all ones
        elif tensor.dtype.kind == "f":
            finite = _is_finite(tensor)
        else:
            finite = True
        if not finite:
            raise RefusedTensors(f"weights[{name!r}]: not finite")


def _is_finite(tensor: NDArray[Any]) -> bool:
    if tensor.dtype == np.float32:
        # reads each number once; not finite if one of them is not, or if it overflows
        numbers = tensor.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.dot(numbers, numbers)):
                return True
    # both are NaN if any number is, and neither needs a temporary array of booleans
    return bool(np.isfinite(tensor.max()) and np.isfinite(tensor.min()))


def stored_as_float32(tensor: NDArray[Any]) -> NDArray[np.float32]:
    """A stored fp32, fp16 or bf16 tensor as float32 numbers."""
    if tensor.dtype == _STORED["bf16"]:
        return (tensor.astype(np.uint32) << 16).view(np.float32)
    return tensor.astype(np.float32, copy=False)
