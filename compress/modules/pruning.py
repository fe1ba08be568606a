"""Structured pruning of modules with residuals, branches or an LSTM."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from compress.errors import ChainError
from compress.modules.lstm_pruning import (
    check_lstm,
    importance,
    one_operation_each,
    pruning_function,
)


def prune_module(
    module: nn.Module,
    example_inputs: Any,
    sparsity: float = 0.5,
    ignored: Sequence[str] = (),
    *,
    round_to: int | None = None,
) -> nn.Module:
    """A smaller copy of your own module, by Torch-Pruning's dependency graph (Fang et al. 2023).

    Channels that depend on each other, as on both sides of a residual sum, are removed together;
    the least important by the L2 norm of all their weights go first. Save the result as its
    `state_dict` and the widths, not as a pickled module.

    Args:
        module: traced by running it once; stays unchanged.
        sparsity: share of channels and hidden units to remove, 0 < sparsity < 1.
        ignored: names of submodules that keep their outputs: the heads.
        round_to: remaining channels are rounded to a multiple of this.

    Raises:
        ChainError: Torch-Pruning is not installed, a value is outside of its range, a name is
            unknown, an LSTM has several layers, two directions or a projection and is not ignored,
            or the outputs would change their shape, as they do when a head is not ignored.
    """
    if not 0.0 < sparsity < 1.0:
        raise ChainError(f"sparsity: expected more than 0 and less than 1, got {sparsity!r}")
    try:
        library = importlib.import_module("torch_pruning")
    except ImportError as error:
        raise ChainError(
            "prune_module needs Torch-Pruning: pip install 'aclearn[prune-modules]'"
        ) from error
    pruned = copy.deepcopy(module)
    parts = dict(pruned.named_modules())
    unknown = [name for name in ignored if name not in parts]
    if unknown:
        names = ", ".join(filter(None, parts))
        raise ChainError(f"ignored: {unknown[0]!r} is unknown; expected some of {names}")
    for name, part in parts.items():
        if isinstance(part, nn.LSTM) and name not in ignored:
            check_lstm(name, part)
    inputs = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    before = _shapes(copy.deepcopy(pruned), inputs)
    asked = {name: parameter.requires_grad for name, parameter in pruned.named_parameters()}
    modes = {part: part.training for part in parts.values()}
    pruned.requires_grad_(True)  # the library reads the graph of autograd
    with torch.enable_grad(), one_operation_each(pruned):
        pruner = library.pruner.BasePruner(
            pruned,
            inputs,
            importance=importance(library),
            pruning_ratio=sparsity,
            ignored_layers=[parts[name] for name in ignored],
            round_to=round_to,
            customized_pruners={nn.LSTM: pruning_function(library)},
            # the library's own tries another call when this one raises
            forward_fn=lambda model, given: model(*given),
        )
        pruner.step()
    for name, parameter in pruned.named_parameters():
        parameter.requires_grad_(asked[name])
        parameter.grad = None
    try:
        after = _shapes(pruned, inputs)
    except RuntimeError as error:
        raise ChainError(
            f"the pruned module cannot be run ({error}); does a dense layer see more axes than "
            "[N, features]? Flatten time and batch before it"
        ) from error
    for part, training in modes.items():
        part.training = training
    if after != before:
        raise ChainError(
            f"the outputs of the pruned module have shapes {after}, those of the module {before}; "
            "name their layers in ignored"
        )
    return pruned


def _shapes(module: nn.Module, inputs: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """The shapes of all output tensors, without LSTM states, which may be narrower.

    Leaves the module in evaluation mode.
    """
    states: list[torch.Tensor] = []
    hooks = [
        part.register_forward_hook(lambda _, __, given: states.extend(given[1]))
        for part in module.modules()
        if isinstance(part, nn.LSTM)
    ]
    try:
        with torch.no_grad():
            given = list(_tensors(module.eval()(*inputs)))
    finally:
        for hook in hooks:
            hook.remove()
    return [tuple(t.shape) for t in given if not any(t is state for state in states)]


def _tensors(given: Any) -> list[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        return [given]
    values = given.values() if isinstance(given, dict) else given
    if not isinstance(given, (dict, list, tuple)):
        return []
    return [tensor for value in values for tensor in _tensors(value)]
