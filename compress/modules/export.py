"""Torch modules of the user's own as self-contained ONNX models, checked against torch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from aclearn.policies.onnx_export import NotExportable, difference, exported_by_torch
from compress.errors import ChainError

#: Additional rows of the second run, which finds a frozen batch size.
_MORE_ROWS = 2
#: Largest difference to torch, relative to the largest output.
_TOLERANCE = 1e-3


def export_module(
    module: nn.Module,
    example: Tensor | tuple[Tensor, ...],
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
) -> bytes:
    """A serialised ONNX model of `module`, whose outputs have been compared with torch's.

    The first dimension of every input and output stays free. The comparison uses the example and a
    batch of another size, so that a frozen batch size is found here and not in an actor. For
    policies of `aclearn` there is `export_onnx`.

    Args:
        module: run in evaluation mode; stays unchanged.
        example: its inputs, each `[N, …]` with one N.
        inputs: names of the inputs; "observation" for a single one, else "input_0", …
        outputs: names of the outputs; "parameters" for a single one, else "output_0", …

    Raises:
        ChainError: the example has no rows, the export fails, or the model's outputs differ or are
            NaN.
    """
    given = example if isinstance(example, tuple) else (example,)
    _check_rows(module, given)
    module = copy.deepcopy(module).eval()
    expected = _outputs(module, given)
    names_in = _names(inputs, len(given), "observation", "input")
    names_out = _names(outputs, len(expected), "parameters", "output")
    try:
        model = exported_by_torch(module, given, inputs=names_in, outputs=names_out)
    except NotExportable as error:
        raise ChainError(f"{type(module).__name__}: {error}") from error
    count = len(given[0])
    rows = torch.arange(count + _MORE_ROWS) % count
    reason = difference(
        model,
        lambda batch: _outputs(module, batch),
        [given, tuple(tensor[rows] for tensor in given)],
        inputs=names_in,
        tolerance=_TOLERANCE,
    )
    if reason:
        raise ChainError(
            f"{type(module).__name__}: its ONNX graph {reason} "
            "(does it branch on its input or on the batch size?)"
        )
    return model


def _check_rows(module: nn.Module, given: tuple[Tensor, ...]) -> None:
    counts = [tensor.shape[0] if tensor.ndim else 0 for tensor in given]
    if not counts or min(counts) < 1 or len(set(counts)) > 1:
        raise ChainError(
            f"{type(module).__name__}: example: expected inputs of one number of rows, 1 or more, "
            f"got {[tuple(tensor.shape) for tensor in given]}"
        )


def _outputs(module: nn.Module, arguments: tuple[Tensor, ...]) -> list[Tensor]:
    try:
        with torch.no_grad():
            given: Any = module(*arguments)
    except Exception as error:
        # whatever the user's own code raises
        raise ChainError(
            f"{type(module).__name__}: it does not run on {len(arguments[0])} rows: {error}"
        ) from error
    tensors = [given] if isinstance(given, Tensor) else list(given)
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        raise ChainError(
            f"{type(module).__name__}: expected a tensor or a tuple of tensors from it, "
            f"got {type(given).__name__}"
        )
    return [tensor.cpu() for tensor in tensors]


def _names(given: Sequence[str] | None, count: int, single: str, several: str) -> list[str]:
    if given is None:
        return [single] if count == 1 else [f"{several}_{index}" for index in range(count)]
    if len(given) != count:
        raise ChainError(f"expected {count} names of {several}s, got {len(given)}: {list(given)}")
    return list(given)
