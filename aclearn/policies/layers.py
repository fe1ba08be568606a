"""Layers: one ordered list defines a network.

The list is plain data, from which the torch module, the ONNX graph, the prunable units, the names
and shapes of all tensors and the digests are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, NamedTuple

from aclearn.policies.module_spec import ModuleSpec
from aclearn.types import ObservationSpec

Shape = tuple[int, ...]

#: Least probability whose logarithm is taken: float32's smallest normal number.
SMALLEST = 2.0**-126
#: Share of the probabilities' mean in the result of "votes".
TIES = 1e-3
#: Bound of normalised observations, in standard deviations.
MOST_DEVIATIONS = 10.0


@dataclass(frozen=True)
class Layer:
    """One step of a network.

    The kinds, and their fields:

    * "scale": times `factor`; the first layer of each leaf of the observations, which converts it
      to the network's dtype.
    * "convolution": a square one, `units` filters, `kernel`, `stride`, `padding`, `bias`, `gain`.
    * "dense": `units`, `bias`, `gain`.
    * "max_pool": `kernel`, `stride`, `padding`.
    * "flatten": all but the first axis become one.
    * "concat": the flat layers that it reads, side by side.
    * "relu", "tanh", "elu", "silu"; "add": the sum of the two layers that it reads.
    * "module": `module`, a network of the user's own, which gives `units` numbers.
    * "part": `units` of the numbers that it reads, from number `start` on.
    * "dueling": of advantages and a value, which it reads in this order, the values of actions:
      value + advantage − mean advantage (Wang et al. 2016, eq. 9).
    * "log_std": what it reads, and after it `units` numbers that no observation changes.
    * "state": `units` numbers of the step before: the output of the layer `next`; zeros where an
      episode begins. It reads nothing.
    * "lstm_cell", "lstm_output": of gates (input, forget, cell, output; side by side) and a cell
      c, the next cell σ(f)·c + σ(i)·tanh(g) and its output σ(o)·tanh(c) (Hochreiter & Schmidhuber
      1997, with Gers et al.'s forget gate). "gru": of the products of the input and of the state h
      (reset, update, new; side by side) and h, the next state (Cho et al. 2014, in the form of
      cuDNN): n = tanh(x_n + σ(r)·h_n), (1 − σ(z))·n + σ(z)·h.
    * "mean", "mean_of_choices", "votes" and "mean_of_numbers": of an ensemble's members, whose
      outputs of one size it reads; see `aclearn.policies.ensemble`.
    * "normalise": (x − mean) / std, component by component, within ± 10. "denormalise": its
      inverse, x · std + mean, with one mean and std for all components. The trainer keeps their
      statistics; they have no gradient.

    Any other kind has no tensors and keeps the shape of its input. It is implemented in
    `aclearn.policies.layer_kinds.KINDS` and `compress.graphs.onnx_graph.KINDS`.

    Attributes:
        name: of the layer; its tensors are called `<name>.weight` and `<name>.bias`, that of
            "log_std" `<name>.log_std`, those of "normalise" `<name>.mean` and `<name>.std`.
        reads: names of layers before it, or of a leaf.
        kernel, stride, padding: in pixels of its input.
        initial: first value of each number of "log_std".
        next: of "state": a layer after it, whose output is the state before the next step.
        module: its tensors are called `<name>.<parameter>`.
        head: it gives the distribution's parameters or the value, in float32 under autocast too.
    """

    name: str
    kind: str
    reads: tuple[str, ...]
    units: int = 0
    kernel: int = 0
    stride: int = 1
    padding: int = 0
    bias: bool = True
    factor: float = 1.0
    gain: float = 1.0
    head: bool = False
    start: int = 0
    initial: float = 0.0
    next: str = ""
    module: ModuleSpec | None = None

    @property
    def is_product(self) -> bool:
        """Whether it multiplies by a weight."""
        return self.kind in ("convolution", "dense")

    @property
    def is_normaliser(self) -> bool:
        """Whether its tensors are statistics, which no optimiser changes."""
        return self.kind in ("normalise", "denormalise")

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """The names of its tensors."""
        names: tuple[str, ...] = ()
        if self.is_product:
            names = ("weight", "bias")[: 1 + self.bias]
        elif self.is_normaliser:
            names = ("mean", "std")
        elif self.kind == "log_std":
            names = ("log_std",)
        elif self.module is not None:
            names = tuple(name for name, _ in self.module.tensors)
        return tuple(f"{self.name}.{name}" for name in names)

    def output_shape(self, given: Shape, *others: Shape) -> Shape:
        """Shape of one observation's output, for these input shapes."""
        if self.kind in ("convolution", "max_pool"):
            channels, *size = given
            sides = ((side + 2 * self.padding - self.kernel) // self.stride + 1 for side in size)
            return (self.units or channels, *sides)
        if self.kind == "flatten":
            return (prod(given),)
        if self.kind == "concat":
            return (given[0] + sum(other[0] for other in others),)
        if self.kind == "log_std":
            return (given[0] + self.units,)
        if self.kind in ("lstm_cell", "lstm_output", "gru"):
            return others[-1]
        return (self.units,) if self.kind in ("dense", "module", "part") else given

    def tensor_shapes(self, given: Shape) -> dict[str, Shape]:
        """Shapes of its tensors by name, for this input shape."""
        if self.module is not None:
            return {f"{self.name}.{name}": shape for name, shape in self.module.tensors}
        shape: Shape = (self.units,)
        if self.is_normaliser:
            shape = given if self.kind == "normalise" else (1,)
        shapes = dict.fromkeys(self.tensor_names, shape)
        if self.is_product:
            kernel = (self.kernel, self.kernel) if self.kind == "convolution" else ()
            shapes[f"{self.name}.weight"] = (self.units, given[0], *kernel)
        return shapes

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able data, without the fields that have their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        data = {name: value for name, value in values.items() if value != defaults[name]}
        return data if self.module is None else data | {"module": self.module.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Layer:
        """The layer that `to_dict` described."""
        data = {**data, "reads": tuple(data["reads"])}
        if "module" in data:
            data["module"] = ModuleSpec.from_dict(data["module"])
        return cls(**data)


def output_shapes(layers: Iterable[Layer], observation: ObservationSpec) -> dict[str, Shape]:
    """The shape of each leaf and each layer's output for one observation, by name.

    Raises:
        ValueError: a name is repeated, a layer reads one that does not precede it, or a state and
            its next one have different shapes.
    """
    layers = tuple(layers)
    shapes = {name: leaf.shape for name, leaf in observation.items()}
    for layer in layers:
        unknown = [name for name in layer.reads if name not in shapes]
        if layer.kind == "state" and not layer.reads:
            shapes[layer.name] = (layer.units,)
            continue
        if unknown or not layer.reads:
            raise ValueError(
                f"layer {layer.name!r} reads {unknown or 'nothing'}; expected layers before it: "
                f"{', '.join(shapes)}"
            )
        if layer.name in shapes:
            raise ValueError(f"layer {layer.name!r} is there twice")
        shapes[layer.name] = layer.output_shape(*(shapes[name] for name in layer.reads))
    for state in states(layers):
        if shapes.get(state.next) != (state.units,):
            raise ValueError(
                f"state {state.name!r}: expected a layer {state.next!r} with {state.units} "
                f"outputs, got {shapes.get(state.next)}"
            )
    return shapes


def states(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """The states that the layers keep from step to step, in the order of `PolicyOutput.state`."""
    return tuple(layer for layer in layers if layer.kind == "state")


def tensor_shapes(layers: Iterable[Layer], observation: ObservationSpec) -> dict[str, Shape]:
    """Every tensor's name and shape, in the order of the layers."""
    layers = tuple(layers)
    outputs = output_shapes(layers, observation)
    return {
        name: shape
        for layer in layers
        if layer.reads
        for name, shape in layer.tensor_shapes(outputs[layer.reads[0]]).items()
    }


def needed_by(layers: Iterable[Layer], *names: str) -> tuple[Layer, ...]:
    """The layers on which these outputs depend, in this step or by a state, those included."""
    layers = tuple(layers)
    needed, known = {*names}, 0
    while len(needed) > known:  # a state needs a layer after it
        known = len(needed)
        for layer in reversed(layers):
            if layer.name in needed:
                needed.update((*layer.reads, layer.next) if layer.next else layer.reads)
    return tuple(layer for layer in layers if layer.name in needed)


class Recurrence(NamedTuple):
    """A network's layers in three parts, of which only one must run step after step.

    Attributes:
        before: no state reaches them: all steps in one pass.
        steps: the states' next values depend on these, and these on the states.
        after: what reads them: all steps in one pass.
    """

    before: tuple[Layer, ...]
    steps: tuple[Layer, ...]
    after: tuple[Layer, ...]


def recurrence(layers: Iterable[Layer]) -> Recurrence:
    """Split the layers of a network with states by what must run step after step."""
    layers = tuple(layers)
    kept = {layer.name for layer in needed_by(layers, *(state.next for state in states(layers)))}
    reached: set[str] = set()
    for layer in layers:
        if layer.kind == "state" or not reached.isdisjoint(layer.reads):
            reached.add(layer.name)
    return Recurrence(
        tuple(layer for layer in layers if layer.name not in reached),
        tuple(layer for layer in layers if layer.name in reached & kept),
        tuple(layer for layer in layers if layer.name in reached - kept),
    )


def factored(layers: Iterable[Layer], ranks: Mapping[str, int]) -> tuple[Layer, ...]:
    """The list with each of these products replaced by two layers: W ≈ up · down.

    Args:
        ranks: name of a layer → outputs of its `down`.
    """
    renamed: dict[str, str] = {}
    result = []
    for layer in layers:
        following = f"{layer.next}.up" if layer.next in ranks else layer.next
        reads = tuple(renamed.get(name, name) for name in layer.reads)
        layer = replace(layer, reads=reads, next=following)
        if layer.name not in ranks:
            result.append(layer)
            continue
        down, up = f"{layer.name}.down", f"{layer.name}.up"
        result.append(replace(layer, name=down, units=ranks[layer.name], bias=False))
        kernel = min(layer.kernel, 1)
        result.append(replace(layer, name=up, reads=(down,), kernel=kernel, stride=1, padding=0))
        renamed[layer.name] = up
    return tuple(result)
