"""Structured pruning of modules that are no plain chain: residuals, concatenations, branches."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from compress.errors import ChainError


def prune_module(
    module: nn.Module,
    example_inputs: Any,
    sparsity: float = 0.5,
    ignored: Sequence[str] = (),
    *,
    round_to: int | None = None,
) -> nn.Module:
    """A smaller copy of your own module, by Torch-Pruning's dependency graph (Fang et al. 2023).

    Channels that must go together, as on both sides of a residual sum, go together; the least
    important by the L2 norm of all of their weights are removed. Save the result by its
    `state_dict` and the widths, not as a pickled module.

    Args:
        module: traced by running it once; stays as it is.
        example_inputs: a tensor, or a tuple of tensors, to run it with.
        sparsity: share of channels and hidden units to remove, 0 < sparsity < 1.
        ignored: names of submodules that keep their outputs: the heads.
        round_to: channels that stay are rounded to a multiple of this.

    Raises:
        ChainError: Torch-Pruning is not installed, a value is outside of its range, a name is
            unknown, or the outputs would change their shape, as they do when a head is not ignored.
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
    inputs = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    before = _shapes(copy.deepcopy(pruned), inputs)
    asked = {name: parameter.requires_grad for name, parameter in pruned.named_parameters()}
    modes = {part: part.training for part in parts.values()}
    pruned.requires_grad_(True)  # the library reads the graph of autograd
    with torch.enable_grad():
        pruner = library.pruner.BasePruner(
            pruned,
            inputs,
            importance=library.importance.GroupMagnitudeImportance(p=2),
            pruning_ratio=sparsity,
            ignored_layers=[parts[name] for name in ignored],
            round_to=round_to,
        )
        pruner.step()
    for name, parameter in pruned.named_parameters():
        parameter.requires_grad_(asked[name])
        parameter.grad = None
    after = _shapes(pruned, inputs)
    for part, training in modes.items():
        part.training = training
    if after != before:
        raise ChainError(
            f"the outputs of the pruned module have shapes {after}, those of the module {before}; "
            "name the layers that give them in ignored"
        )
    return pruned


def _shapes(module: nn.Module, inputs: tuple[Any, ...]) -> list[tuple[int, ...]]:
    """The shapes of all tensors that it gives; leaves it in evaluation mode."""
    with torch.no_grad():
        return [tuple(tensor.shape) for tensor in _tensors(module.eval()(*inputs))]


def _tensors(given: Any) -> list[torch.Tensor]:
    if isinstance(given, torch.Tensor):
        return [given]
    values = given.values() if isinstance(given, dict) else given
    if not isinstance(given, (dict, list, tuple)):
        return []
    return [tensor for value in values for tensor in _tensors(value)]
