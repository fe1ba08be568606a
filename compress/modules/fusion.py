"""Batch normalisation and input scaling folded into the layers of a torch module."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import fx, nn

Array = NDArray[Any]


def fold_batch_norm(
    weight: Array,
    bias: Array | None,
    mean: Array,
    variance: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    eps: float = 1e-5,
) -> tuple[Array, Array]:
    """Weight and bias of one layer that replaces a layer and the batch normalisation after it.

    γ (W x + b − μ) / √(σ² + ε) + β, with the running statistics (Ioffe & Szegedy 2015, §3.1).

    Args:
        weight: `(out, …)` of a dense layer or a convolution.
        bias: `(out,)`; None for a layer without.
        mean: μ `(out,)`.
        variance: σ² `(out,)`.
        gamma: γ `(out,)`; None for 1.
        beta: β `(out,)`; None for 0.

    Returns:
        Weight and bias in the dtype of `weight`.

    Raises:
        ValueError: shapes do not fit, or σ² + ε is not positive.
    """
    outs = (len(weight),)
    mean64, variance64 = _sized("mean", mean, outs), _sized("variance", variance, outs)
    gamma64 = _sized("gamma", np.ones(outs) if gamma is None else gamma, outs)
    beta64 = _sized("beta", np.zeros(outs) if beta is None else beta, outs)
    bias64 = _sized("bias", np.zeros(outs) if bias is None else bias, outs)
    if not np.all(variance64 + eps > 0.0):
        raise ValueError("variance: expected more than 0 with eps added")
    factor = gamma64 / np.sqrt(variance64 + eps)
    folded = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    return folded.astype(weight.dtype), ((bias64 - mean64) * factor + beta64).astype(weight.dtype)


def fold_normalisation(
    weight: Array, bias: Array | None, mean: Array | float, std: Array | float
) -> tuple[Array, Array]:
    """Weight and bias of one layer that replaces a normaliser and the layer after it.

    W ((x − m) / s) + b. For a convolution this holds without padding only: padded zeros come after
    the normaliser.

    Args:
        weight: `(out, in)` or `(out, in, k, k)`.
        bias: `(out,)`; None for a layer without.
        mean: m, one number or one per input (channel).
        std: s, likewise.

    Returns:
        Weight and bias in the dtype of `weight`.

    Raises:
        ValueError: shapes do not fit, or an s is not positive.
    """
    inputs = weight.shape[1:2]
    mean64 = _sized("mean", np.broadcast_to(mean, inputs) if np.ndim(mean) == 0 else mean, inputs)
    std64 = _sized("std", np.broadcast_to(std, inputs) if np.ndim(std) == 0 else std, inputs)
    bias64 = _sized("bias", np.zeros(len(weight)) if bias is None else bias, (len(weight),))
    if not np.all(std64 > 0.0):
        raise ValueError("std: expected more than 0 for every input")
    by_input = (1, -1, *(1,) * (weight.ndim - 2))
    folded = weight / std64.reshape(by_input)
    moved = np.sum(folded * mean64.reshape(by_input), axis=tuple(range(1, weight.ndim)))
    return folded.astype(weight.dtype), (bias64 - moved).astype(weight.dtype)


def fuse_module(module: nn.Module, example: Any = None) -> fx.GraphModule:
    """A copy of a module of your own with batch normalisations folded into the layers before them.

    Pairs of Conv1d, Conv2d, Conv3d and the BatchNorm of the same rank are folded, and pairs of
    Linear and BatchNorm1d, which must see `[N, features]`. A pair stays where another module reads
    in between, where a module is called twice or has hooks, and where a normalisation has no
    running statistics.

    Args:
        module: in evaluation mode, and traceable by `torch.fx`.
        example: an input, or a tuple of inputs, on which the copy is compared with the module.

    Raises:
        ValueError: it is in training mode, cannot be traced, or the copy's output differs.
    """
    import torch
    from torch import fx, nn

    training = [name or "module" for name, part in module.named_modules() if part.training]
    if training:
        raise ValueError(f"module: {training[0]} is in training mode; call module.eval() before")
    try:
        fused = fx.symbolic_trace(copy.deepcopy(module))
    except fx.proxy.TraceError as error:
        raise ValueError(f"module: torch.fx cannot trace it: {error}") from error
    kinds = {
        nn.BatchNorm1d: (nn.Conv1d, nn.Linear),
        nn.BatchNorm2d: (nn.Conv2d,),
        nn.BatchNorm3d: (nn.Conv3d,),
    }
    calls = Counter(node.target for node in fused.graph.nodes if node.op == "call_module")
    reads = {str(n.target).rpartition(".")[0] for n in fused.graph.nodes if n.op == "get_attr"}
    parts = dict(fused.named_modules())
    for node in list(fused.graph.nodes):
        if node.op != "call_module" or type(parts[node.target]) not in kinds:
            continue
        norm, before = parts[node.target], node.args[0] if node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        layer = parts[str(before.target)]
        alone = calls[node.target] == calls[before.target] == 1 and before.target not in reads
        hooked = any(p._forward_hooks or p._forward_pre_hooks for p in (layer, norm))
        fits = type(layer) in kinds[type(norm)] and norm.num_features == len(layer.weight)
        if not (alone and fits) or hooked or norm.running_mean is None:
            continue
        layer.weight, layer.bias = nn.utils.fusion.fuse_conv_bn_weights(
            layer.weight,
            layer.bias,
            norm.running_mean,
            norm.running_var,
            norm.eps,
            norm.weight,
            norm.bias,
        )
        node.replace_all_uses_with(before)
        fused.graph.erase_node(node)
    fused.delete_all_unused_submodules()
    fused.recompile()
    if example is not None:
        inputs = example if isinstance(example, tuple) else (example,)
        with torch.inference_mode():
            try:
                torch.testing.assert_close(fused(*inputs), module(*inputs), rtol=1e-3, atol=1e-3)
            except AssertionError as error:
                raise ValueError(
                    "module: the fused copy gives another output for the example; does a Linear "
                    f"see more than [N, features] before its BatchNorm1d? {error}"
                ) from error
    return fused


def _sized(what: str, given: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = np.asarray(given, np.float64)
    if array.shape != shape:
        raise ValueError(f"{what}: expected shape {shape}, got {array.shape}")
    return array
