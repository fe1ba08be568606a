"""The torch module of a policy graph."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from aclearn.policies.network import load_tensors
from compress.graphs.policy_graph import Layer, PolicyGraph, Tensors, stored_as_float32

#: By the names that layers have for them.
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class GraphNetwork(nn.Module):
    """A policy graph in torch, with or without its value; factored layers are two modules.

    Its parameters bear the names of `PolicyGraph.tensors` and hold nothing before `load`: to draw
    random first weights took longer than to load real ones. int8 graphs have no module: they run
    in ONNX Runtime.

    Args:
        graph: fp32, fp16 or bf16.
        with_value: build the value's layers too.

    Raises:
        ValueError: an int8 graph.
    """

    def __init__(self, graph: PolicyGraph, *, with_value: bool = True) -> None:
        super().__init__()
        if graph.precision == "int8":
            raise ValueError("graph: int8 computes in ONNX Runtime only")
        self.graph = graph
        layers = graph.layers()
        self._body = tuple(layer for layer in layers if not is_head(layer))
        self._head = tuple(layer for layer in layers if is_head(layer))
        value_layers = graph.value_layers() if with_value else ()
        self._value_body = tuple(layer for layer in value_layers if not is_head(layer))
        self._value_head = tuple(layer for layer in value_layers if is_head(layer))
        for layer in (*layers, *value_layers):
            _place(self, layer.name, _module_of(layer))
        self._first = layers[0].name

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits `[N, A]`, and values `[N]` where the network has them.

        Under autocast too they have the digits that the weights are stored in.
        """
        dtype = self.get_parameter(f"{self._first}.weight").dtype
        x = observations.to(dtype)
        if self.graph.input_scale != 1.0:
            x = x * self.graph.input_scale
        convolutions = [layer for layer in self._body if layer.is_convolution]
        flat = self._run(convolutions, x).flatten(1)
        features = self._run([layer for layer in self._body if not layer.is_convolution], flat)
        separate = self.graph.architecture.separate_value
        valued = self._run(self._value_body, flat if separate else features)
        device = features.device.type
        if not torch.is_autocast_enabled(device):
            return self._heads(features, valued)
        # as those of `PolicyNetwork`: bf16 knows no value between 100 and 100.5
        with torch.autocast(device, enabled=False):
            return self._heads(features.to(dtype), valued.to(dtype))

    def _heads(self, features: Tensor, valued: Tensor) -> tuple[Tensor, Tensor | None]:
        logits = self._run(self._head, features)
        return logits, self._run(self._value_head, valued).squeeze(1) if self._value_head else None

    def _run(self, layers: Iterable[Layer], x: Tensor) -> Tensor:
        kept = x
        for layer in layers:
            if layer.input_activation is not None:
                kept, x = x, ACTIVATIONS[layer.input_activation](x)
            x = after_product(layer, self.get_submodule(layer.name)(x), kept)
        return x

    def load(self, tensors: Tensors) -> GraphNetwork:
        """Write stored tensors into the parameters; returns self.

        Raises:
            ValueError: names or shapes differ.
        """
        precision = self.graph.precision
        mine = {
            name: stored_as_float32(tensors[name], precision)
            for name, _ in self.named_parameters()
            if name in tensors
        }
        load_tensors(self, mine)
        return self


def after_product(layer: Layer, x: Tensor, kept: Tensor) -> Tensor:
    """What a layer does with its product: max-pool, sum with what its block was given, activation.

    Args:
        layer: says which of them.
        x: the product.
        kept: what the residual block was given.
    """
    if layer.pooled:
        x = nn.functional.max_pool2d(x, 3, stride=2, padding=1)
    if layer.closes_block:
        x = x + kept
    return x if layer.activation is None else ACTIVATIONS[layer.activation](x)


def is_head(layer: Layer) -> bool:
    """Whether it belongs to what gives logits or values, and no activation follows."""
    return layer.name.split(".")[0] in ("policy", "value")


def _module_of(layer: Layer) -> nn.Module:
    if layer.is_convolution:
        out, channels, kernel, _ = layer.weight
        convolution: nn.Module = nn.utils.skip_init(  # type: ignore[no-untyped-call]
            nn.Conv2d,
            channels,
            out,
            kernel,
            stride=layer.stride,
            padding=layer.padding,
            bias=layer.bias,
        )
        return convolution
    out, width = layer.weight
    linear: nn.Module = nn.utils.skip_init(  # type: ignore[no-untyped-call]
        nn.Linear, width, out, bias=layer.bias
    )
    return linear


def _place(root: nn.Module, dotted: str, module: nn.Module) -> None:
    *path, last = dotted.split(".")
    for name in path:
        if name not in root._modules:
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    root.add_module(last, module)
