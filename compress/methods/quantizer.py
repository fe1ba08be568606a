"""Quantisation: int8 computes in int8; fp16 and bf16 halve the transferred bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from aclearn.config import Group, Whole
from aclearn.types import Visited
from compress.errors import RefusedTensors
from compress.graphs.policy_graph import PolicyGraph
from compress.policy import Context, Policy
from compress.sequences import measured, network_outputs
from compress.settings import ConfiguredLink

Range = tuple[float, float]

#: Largest bias in steps of s_in · s_w; the other half of an int32 is for the sum of products.
_BIAS_MAX = 2**30
#: Weights that are rounded at a time: they fit into the second-level cache.
_BLOCK = 131_072


class QuantizerSettings(Group):
    """Settings of `quantize`."""

    precision: Annotated[
        Literal["int8", "fp16", "bf16"],
        BeforeValidator(
            lambda given: given.lower() if isinstance(given, str) else given,
            json_schema_input_type=Literal["int8", "fp16", "bf16", "INT8", "FP16", "BF16"],
        ),
    ] = Field(
        default="int8",
        description="int8 computes in int8 and needs `onnx` after it; fp16 and bf16 halve the "
        "transferred bytes",
    )
    per_channel: bool = Field(
        default=False,
        description="one scale of the weights for each output channel: more precise, hardly slower",
    )
    keep_first: Whole | None = Field(
        default=None,
        ge=0,
        description="products after float observations that compute in fp32: one scale for all "
        "features would round small ones away; null: 1 where actions are numbers, whose Gaussian "
        "may be narrow, else 0",
    )
    keep_last: Whole | None = Field(
        default=None,
        ge=0,
        description="products before the parameters that compute in fp32; null: as keep_first; by "
        "default one product is left to int8",
    )
    calibrate_every: Whole = Field(
        default=20, ge=1, description="most versions between two calibrations of the ranges"
    )
    calibration_observations: Whole = Field(
        default=64, ge=1, description="observations for a calibration"
    )
    reduced_range: bool | None = Field(
        default=None,
        description="7-bit weights, for CPUs without VNNI, whose multiply-add saturates at 16 "
        "bits; null: chosen by this machine's CPU, true if other machines take part "
        "(`network.bind_host`)",
    )


class Quantizer(ConfiguredLink[QuantizerSettings]):
    """Static post-training quantisation: `Quantizer("INT8")`, "FP16" or "BF16", in any case.

    INT8: symmetric weights (s = max|w| / 127), uint8 activations with a zero point, ranges
    calibrated on visited observations. Ranges are calibrated at versions 1, 2, 4, 8, … and then
    every `calibrate_every` versions. They are calibrated again in a new generation, for another
    graph, and when pruning selects other units. FP16 and BF16 halve the transferred bytes; on a
    CPU, ONNX Runtime computes them in fp32.
    """

    name = "quantize"
    model = QuantizerSettings

    def __init__(self, *main: Any, **settings: Any) -> None:
        super().__init__(*main, **settings)
        given, self._int8 = self.settings, self.settings.precision == "int8"
        reduced = not has_vnni() if given.reduced_range is None else given.reduced_range
        self._per_channel = given.per_channel and self._int8
        self._reduced_range = reduced and self._int8
        self.needs_observations = self._int8

    @property
    def id(self) -> str:
        """E.g. "int8", "int8-last1", "int8-channels", "int8-7bit"."""
        kept = {"first": self.settings.keep_first, "last": self.settings.keep_last}
        marks = [f"{end}{n}" for end, n in kept.items() if n is not None and self._int8]
        marks += ["channels"] * self._per_channel + ["7bit"] * self._reduced_range
        return "-".join([self.settings.precision, *marks])

    def plan(self, graph: PolicyGraph) -> PolicyGraph:
        """The graph with its layers in the new precision."""
        self.require_fp32(graph)
        if self._int8:
            self.require_layers(graph)
        return replace(
            graph,
            precision=self.settings.precision,
            kept=self._kept(graph) if self._int8 else (),
            per_channel=self._per_channel,
            reduced_range=self._reduced_range,
        )

    def _kept(self, graph: PolicyGraph) -> tuple[str, ...]:
        """The products that stay in fp32, in order.

        Raises:
            ChainError: the settings leave none to int8.
        """
        given = self.settings.keep_first, self.settings.keep_last
        numbers = int(graph.architecture.action_spec.numbers > 0)
        distances = _products_before(graph), _products_after(graph)
        products = {layer.name for layer in graph.products()}
        kept: set[str] = set()
        for wanted, distance in zip(given, distances, strict=True):
            most = numbers if wanted is None else wanted
            more = {name for name in products if distance.get(name, most) < most}
            if wanted is not None or kept | more < products:
                kept |= more
        if kept == products:
            raise self.refuse(
                f"keep_first and keep_last leave none of {len(products)} products to int8; set "
                "them to less, or leave int8 out"
            )
        return tuple(layer.name for layer in graph.products() if layer.name in kept)

    def compress(self, policy: Policy, context: Context) -> Policy:
        """The quantised policy without the value, since acting does not need it.

        Raises:
            NeedsObservations: int8 must be calibrated and there are none yet.
            RefusedTensors: int8 of weights or activations that are not finite.
        """
        graph = self.plan(policy.graph)
        if self._int8:
            ranges = self._ranges(policy, context)
            return policy.become(graph, int8_tensors(graph, policy.tensors, ranges))
        store = to_bfloat16 if self.settings.precision == "bf16" else to_float16
        given = policy.tensors
        stored = {
            name: given[name] if spec.dtype == "float32" else store(given[name])
            for name, spec in graph.tensors().items()
        }
        return policy.become(graph, stored)

    def _ranges(self, policy: Policy, context: Context) -> dict[str, Range]:
        memory = context.memory(self.state_key)
        followed = context.breaks, context.restarts
        numbers = policy.graph.digest(), policy.at.generation, followed
        new = memory.get("numbers") != numbers
        version = 1 if new else memory["version"] + 1
        if new or version >= memory["next"]:
            rng = np.random.default_rng((context.seed, memory.get("calibrations", 0)))
            visited = context.sample(self.id, self.settings.calibration_observations, rng)
            memory["ranges"] = activation_ranges(policy, visited, self.plan(policy.graph))
            memory["calibrations"] = memory.get("calibrations", 0) + 1
            # after 1, 2, 4, 8, … versions, up to the regular interval
            memory["next"] = version + min(version, self.settings.calibrate_every)
        memory["numbers"], memory["version"] = numbers, version
        ranges: dict[str, Range] = memory["ranges"]
        return ranges


def _products_before(graph: PolicyGraph) -> dict[str, int]:
    """Layer → products before it on the shortest way from a leaf of floats."""
    leaves = graph.architecture.observation.items()
    found = {name: 0 for name, leaf in leaves if leaf.dtype != "uint8"}
    before: dict[str, int] = {}
    for layer in graph.layers():
        if ways := [found[name] for name in layer.reads if name in found]:
            before[layer.name] = min(ways)
            found[layer.name] = before[layer.name] + layer.is_product
    return before


def _products_after(graph: PolicyGraph) -> dict[str, int]:
    """Layer → products after it on the shortest way to the parameters."""
    after = {graph.output: 0}
    for layer in reversed(graph.layers()):
        if layer.name in after:
            here = after[layer.name] + layer.is_product
            for name in layer.reads:
                after[name] = min(after.get(name, here), here)
    return after


def activation_ranges(policy: Policy, visited: Visited, planned: PolicyGraph) -> dict[str, Range]:
    """Smallest and largest input of each layer that `planned` computes in int8, by its name.

    A memory's states are those of the sequences. `<name>.output` has the range of a product's
    output where that has its own scale.

    Raises:
        RefusedTensors: they are not finite.
    """
    # imported here: reading and planning a chain needs no torch
    import torch

    from compress.graphs.graph_network import GraphNetwork

    network = GraphNetwork(policy.graph, with_value=False).load(policy.tensors)
    with torch.inference_mode():
        outputs = measured(network_outputs(network, visited, every_layer=True), visited)
    ranges: dict[str, Range] = {}
    for layer in planned.integer_products():
        ends = {layer.name: outputs[layer.reads[0]]}
        if planned.has_output_scale(layer):
            ends[f"{layer.name}.output"] = outputs[layer.name]
        for name, numbers in ends.items():
            least, largest = map(float, torch.aminmax(numbers))
            if not np.isfinite((least, largest)).all():
                side = "input" if name == layer.name else "output"
                raise RefusedTensors(f"int8: the {side} of {layer.name} is not finite")
            ranges[name] = least, largest
    return ranges


def int8_tensors(
    graph: PolicyGraph, tensors: Any, ranges: dict[str, Range]
) -> dict[str, NDArray[Any]]:
    """All tensors of an int8 graph, from fp32 weights and the ranges of `activation_ranges`.

    Raises:
        RefusedTensors: weights that are not finite, which rounding would hide.
    """
    others = (layer.tensor_names for layer in graph.layers() if not graph.is_integer(layer))
    quantised = {name: tensors[name] for names in others for name in names}
    most = 63 if graph.reduced_range else 127
    raw = graph.raw_products()
    for layer in graph.integer_products():
        if layer.name in raw:
            # raw pixels are quantised already
            scale, zero = np.float32(raw[layer.name].factor), 0
        else:
            scale, zero = activation_scale(ranges[layer.name])
        weight = np.asarray(tensors[f"{layer.name}.weight"], np.float32)
        bias = np.zeros(1)
        if layer.bias:
            bias = tensors[f"{layer.name}.bias"].astype(np.float64)
        weight_scale = _weight_scale(
            weight, bias / float(scale), most, per_channel=graph.per_channel
        )
        if not np.isfinite(weight_scale).all():
            raise RefusedTensors(f"int8: weights[{layer.name!r}]: not finite")
        quantised[f"{layer.name}.weight"] = quantise_weight(weight, weight_scale)
        quantised[f"{layer.name}.weight_scale"] = weight_scale
        quantised[f"{layer.name}.input_scale"] = np.array(scale, np.float32)
        quantised[f"{layer.name}.input_zero"] = np.array(zero, np.uint8)
        if layer.bias:
            # in float64: s_in · s_w of a nearly dead layer is below the smallest float32
            steps = np.rint(bias / (float(scale) * weight_scale.astype(np.float64)))
            quantised[f"{layer.name}.bias"] = steps.astype(np.int32)
        if graph.has_output_scale(layer):
            scale, zero = activation_scale(ranges[f"{layer.name}.output"])
            quantised[f"{layer.name}.output_scale"] = np.array(scale, np.float32)
            quantised[f"{layer.name}.output_zero"] = np.array(zero, np.uint8)
    return quantised


def activation_scale(values: Range) -> tuple[np.float32, int]:
    """Scale and uint8 zero point of a range; 0 is represented exactly."""
    least, largest = min(values[0], 0.0), max(values[1], 0.0)
    scale = np.float32((largest - least) / 255.0)
    if not scale > 0.0:
        return np.float32(1.0), 0  # a dead layer: always 0
    return scale, int(np.clip(np.rint(-least / scale), 0, 255))


def _weight_scale(
    weight: NDArray[np.float32], bias: NDArray[np.float64], most: int, *, per_channel: bool
) -> NDArray[np.float32]:
    """max|w| / most, of the tensor or of each output channel; 1 where that is 0.

    Larger where the bias (in units of the input's scale) would not fit into an int32, as in a
    nearly dead channel.
    """
    axes = tuple(range(1, weight.ndim)) if per_channel else None
    # two passes without the temporary array that an absolute value would be
    largest = np.maximum(weight.max(axis=axes), -weight.min(axis=axes)).astype(np.float64)
    sizes = np.abs(bias) if per_channel else np.abs(bias).max()
    scale = np.maximum(largest / most, sizes / _BIAS_MAX)
    # below the smallest normal number a division by the scale is not precise any more
    return np.where(scale < np.finfo(np.float32).tiny, 1.0, scale).astype(np.float32)


def quantise_weight(weight: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.int8]:
    """Q = round(w / s) to even, as int8; `scale` is one number or one per output channel."""
    result = np.empty(weight.shape, np.int8)
    rows, out = weight.reshape(len(weight), -1), result.reshape(len(weight), -1)
    # a few rows at a time: whole intermediate arrays would pass through memory twice
    step = max(1, _BLOCK // max(1, rows.shape[1]))
    column = scale.reshape(-1, 1) if scale.ndim else scale
    room = np.empty((step, rows.shape[1]), np.float32)
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        quotient = room[: len(rows[block])]
        np.divide(rows[block], column[block] if scale.ndim else column, out=quotient)
        np.rint(quotient, out=quotient)
        np.copyto(out[block], quotient, casting="unsafe")
    return result


def to_float16(tensor: NDArray[np.float32]) -> NDArray[np.float16]:
    """Round to float16: numbers outside its range become its largest, infinite ones stay."""
    largest = np.finfo(np.float16).max
    clipped = np.clip(tensor, -largest, largest)
    return np.where(np.isinf(tensor), tensor, clipped).astype(np.float16)


def to_bfloat16(tensor: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper 16 bits of each number, rounded to even: bfloat16, which numpy does not have."""
    bits = np.ascontiguousarray(tensor, np.float32).reshape(tensor.shape).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> 16
    # just below infinity: rounding up must not make it infinite
    rounded = np.where((rounded & 0x7F80) == 0x7F80, (bits >> 16), rounded)
    return rounded.astype(np.uint16)


def has_vnni() -> bool:
    """Whether this CPU multiplies uint8 by int8 without saturation at 16 bits."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return False
    flags = next((line for line in info.read_text().splitlines() if line.startswith("flags")), "")
    # ARM kernels do not saturate; ARM's line is called Features
    return not flags or "vnni" in flags
