"""The torch module of a list of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from aclearn.errors import ConfigError
from aclearn.policies.architecture import POLICY
from aclearn.policies.layer_kinds import KINDS, Compute, ScaledConvolution, same
from aclearn.policies.layers import Layer, Shape, output_shapes, recurrence, states
from aclearn.policies.users_network import UsersNetwork
from aclearn.types import ObservationSpec
from aclearn.types.observation_spec import Observations


class _Step(NamedTuple):
    name: str
    compute: Compute
    reads: tuple[str, ...]
    exact: bool  # in the weights' dtype under autocast too
    unneeded: tuple[str, ...]  # dropped after it, to free their memory
    reads_raw: bool  # observations in their own dtype: it converts after its computation


class LayerNetwork(nn.Module):
    """A list of layers in torch; its parameters have the names of `layers.tensor_shapes`.

    Args:
        fold_scales: compute `f(s · x)` of convolutions of observations as `(f · s)(x)`, which takes
            less of many images. The output of a layer "scale" is then without its factor.

    Raises:
        ConfigError: `KINDS` lacks a layer's kind.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        observation: ObservationSpec,
        *,
        fold_scales: bool = False,
    ) -> None:
        super().__init__()
        self.layers, self.leaves = tuple(layers), tuple(observation)
        shapes = output_shapes(layers, observation)
        parts = recurrence(layers)
        ordered = [layer for part in parts for layer in part]
        last_reader = {name: layer.name for layer in ordered for name in layer.reads}
        self.states = states(layers)
        kept = {POLICY, *(state.next for state in self.states)}
        computes = {
            layer.name: _compute(layer, shapes) for layer in layers if layer.kind != "state"
        }
        folded = _fold(layers, computes) if fold_scales else set()
        first = {
            name: [layer for layer in layers if name in layer.reads[:1]] for name in observation
        }
        # the first layer multiplies in place, unless others read the same numbers
        alone = {name for name, readers in first.items() if len(readers) == 1}
        for layer in (each for each in layers if each.kind == "scale"):
            if computes[layer.name] is not same and layer.reads[0] not in alone:
                computes[layer.name] = partial(torch.mul, other=layer.factor)
        computed: dict[str, _Step] = {}
        for layer in layers:
            if layer.kind == "state":
                continue
            compute = computes[layer.name]
            owned = compute.module if isinstance(compute, UsersNetwork) else compute
            if isinstance(owned, nn.Module):
                _place(self, layer.name, owned)
            unneeded = tuple(
                name for name in layer.reads if last_reader[name] == layer.name and name not in kept
            )
            raw = layer.kind == "normalise"
            # a state's errors add up over the steps, and so do conversions of small tensors
            exact = layer.head or (layer in parts.steps and layer.module is None)
            step = _Step(layer.name, compute, layer.reads, exact, unneeded, raw)
            computed[layer.name] = step
        self._before, self._recurrent, self._after = (
            [computed[layer.name] for layer in part if layer.name in computed] for part in parts
        )
        self._steps = [*self._before, *self._recurrent, *self._after]
        self._whole = next(
            (
                (step, step.compute)
                for step in self._recurrent
                if isinstance(step.compute, UsersNetwork) and step.compute.unrolls
            ),
            None,
        )
        products = (i for i, step in enumerate(self._steps) if hasattr(step.compute, "weight"))
        self._product = next(products, None)  # a network of the user's own has none
        self._raw = {
            name for name, readers in first.items() if any(r.kind == "normalise" for r in readers)
        }
        self._scaled = {
            name
            for name in alone
            if first[name][0].kind == "scale" and computes[first[name][0].name] is not same
        }
        self._pixels = {
            name
            for name, readers in first.items()
            if readers and all(reader.name in folded for reader in readers)
        }

    def leaf_tensors(self, observations: Observations) -> list[Tensor]:
        """Copies of the leaves' arrays on the CPU, in the order of the network's inputs."""
        # copies: torch warns of the read-only views of a message
        return [torch.from_numpy(np.array(observations[name])) for name in self.leaves]

    def outputs(
        self, *observations: Tensor, state: tuple[Tensor, ...] = (), every_layer: bool = False
    ) -> dict[str, Tensor]:
        """The outputs of the heads, or of all layers, by name, for each leaf's `[N, *shape]`.

        Heads and cells compute in the weights' dtype under autocast too: they are cheap, and bf16
        has no value between 100 and 100.5. The next states are there too, by their layers' names.

        Args:
            state: float32 `[N, units]` of each of `states`; `()` stands for zeros.
        """
        values, dtype = self._given(observations)
        values.update(self._state_of(state, observations[0], dtype))
        self._run(self._steps, values, dtype, every_layer=every_layer)
        return values

    def outputs_from(
        self, name: str, value: Tensor, *, state: tuple[Tensor, ...] = ()
    ) -> dict[str, Tensor]:
        """The outputs of the heads where the caller has computed layer `name`, `[N, units]`.

        No later layer may read what is before it.
        """
        after = next(i for i, step in enumerate(self._steps) if step.name == name) + 1
        values = {name: value, **self._state_of(state, value, value.dtype)}
        self._run(self._steps[after:], values, value.dtype)
        return values

    def unrolled(
        self,
        *observations: Tensor,
        state: tuple[Tensor, ...],
        starts: Tensor,
        every_layer: bool = False,
    ) -> dict[str, Tensor]:
        """The outputs of the heads for T steps in a row, `[T · B, …]`; next states after the last.

        With `every_layer` all outputs of all layers, the states before each step among them. Only
        a state reaches on its way to the next one is computed step after step.

        Args:
            observations: each leaf's `[T · B, *shape]`.
            state: before the first step, `[B, units]` each; `()` stands for zeros.
            starts: `[T, B]` bool, observations that begin an episode: the state before is zeroed.
        """
        values, dtype = self._given(observations)
        self._run(self._before, values, dtype, every_layer=every_layer)
        if self._whole is not None and not every_layer:  # with the state's parts at the end
            step, users = self._whole
            leaves = [values[name] for name in step.reads[: -len(self.states)]]
            now = self._state_of(state, starts[0], dtype)
            values[step.name], ends = users.unrolled(leaves, (*now.values(),), starts)
            self._run(self._after, values, dtype)
            return values | {each.next: end for each, end in zip(self.states, ends, strict=True)}
        exact = all(step.exact for step in self._recurrent)
        given = {name for step in self._recurrent for name in step.reads} & values.keys()
        by_step = {
            name: (values[name].to(dtype) if exact else values[name])
            .view(*starts.shape, *values[name].shape[1:])
            .unbind()
            for name in given
        }
        reached = {*(step.name for step in self._recurrent), *(each.name for each in self.states)}
        read = {name for step in self._after for name in step.reads} & reached
        rows: dict[str, list[Tensor]] = {name: [] for name in (reached if every_layer else read)}
        now = self._state_of(state, starts[0], dtype)
        # a GPU would have to wait for the answer
        some = starts.any(1).tolist() if starts.device.type == "cpu" else [True] * len(starts)
        # once for all steps: a context of its own for each layer would cost more than its products
        with torch.autocast(starts.device.type, enabled=False) if exact else nullcontext():
            for t, begins in enumerate(starts.unsqueeze(2)):
                at_t = {name: each[t] for name, each in by_step.items()} | now
                if some[t]:
                    at_t |= {name: part.masked_fill(begins, 0.0) for name, part in now.items()}
                self._run(self._recurrent, at_t, dtype, every_layer=True)
                for name, found in rows.items():
                    found.append(at_t[name])
                now = {each.name: at_t[each.next] for each in self.states}
        values |= {name: torch.cat(found) for name, found in rows.items()}
        self._run(self._after, values, dtype, every_layer=every_layer)
        if every_layer:
            return values
        return values | {each.next: now[each.name] for each in self.states}

    def _given(self, observations: Sequence[Tensor]) -> tuple[dict[str, Tensor], torch.dtype]:
        """The leaves as the first layers read them, and the weights' dtype."""
        weight: Tensor
        if self._product is None:
            weight = next(self.parameters())
        else:  # takes 3 µs; `parameters` takes 12
            weight = self._steps[self._product].compute.weight  # type: ignore[attr-defined]
        dtype, device = weight.dtype, observations[0].device.type
        given = {}
        for name, leaf in zip(self.leaves, observations, strict=True):
            if name in self._raw:
                given[name] = leaf
                continue
            # bf16 and fp16 have all numbers of uint8
            exact = name in self._pixels and leaf.dtype == torch.uint8
            half = exact and torch.is_autocast_enabled(device)
            own = torch.get_autocast_dtype(device) if half else dtype
            given[name] = leaf.to(own, copy=name in self._scaled)
        return given, dtype

    def _state_of(
        self, state: tuple[Tensor, ...], like: Tensor, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """Each state by its layer's name; zeros in the rows of `like` without one."""
        if not state:
            rows = like.shape[0]  # which a trace keeps open; it would take `len` as a constant
            state = tuple(
                torch.zeros(rows, each.units, dtype=dtype, device=like.device)
                for each in self.states
            )
        parts = zip(self.states, state, strict=True)
        return {each.name: part.to(dtype) for each, part in parts}

    def _run(
        self,
        steps: Sequence[_Step],
        values: dict[str, Tensor],
        dtype: torch.dtype,
        *,
        every_layer: bool = False,
    ) -> None:
        """Compute the steps in order, in place."""
        device = next(iter(values.values())).device.type
        autocast = torch.is_autocast_enabled(device)
        for name, compute, reads, exact, unneeded, reads_raw in steps:
            given = [values[read] for read in reads]
            if exact and autocast:
                with torch.autocast(device, enabled=False):
                    values[name] = compute(*(x.to(dtype) for x in given))
            else:
                values[name] = compute(*given)
            if reads_raw:
                values[name] = values[name].to(dtype)
            for read in () if every_layer else unneeded:
                del values[read]


def _compute(layer: Layer, shapes: Mapping[str, Shape]) -> Compute:
    if layer.kind not in KINDS:
        raise ConfigError(
            f"policy: layer {layer.name!r}: torch has no kind {layer.kind!r}; expected "
            f"one of {', '.join(KINDS)}, or put it into aclearn.policies.layer_kinds.KINDS"
        )
    return KINDS[layer.kind](layer, shapes[layer.reads[0]])


def _fold(layers: Sequence[Layer], computes: dict[str, Compute]) -> set[str]:
    """Give the factors of scales to the convolutions that alone read them; the scales' names."""
    folded = set()
    for scale in (layer for layer in layers if layer.kind == "scale"):
        readers = [computes[layer.name] for layer in layers if scale.name in layer.reads]
        if readers and all(isinstance(reader, ScaledConvolution) for reader in readers):
            for reader in readers:
                reader.factor = scale.factor  # type: ignore[attr-defined]
            computes[scale.name] = same
            folded.add(scale.name)
    return folded


def _place(root: nn.Module, dotted: str, module: nn.Module) -> None:
    *path, last = dotted.split(".")
    for name in path:
        if name not in root._modules:
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    root.add_module(last, module)
