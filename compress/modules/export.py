"""Torch modules of the user's own as self-contained ONNX models, checked against torch."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from compress.errors import ChainError

#: Additional rows of the second run, which finds a frozen batch size.
_MORE_ROWS = 2


def export_module(
    module: nn.Module,
    example: Tensor | tuple[Tensor, ...],
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    opset: int = 17,
    tolerance: float = 1e-3,
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
        opset: version of the operators.
        tolerance: largest difference to torch, relative to the largest output.

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
    buffer = io.BytesIO()
    try:
        with warnings.catch_warnings():
            # the exporter that needs no further package; upstream prefers the other one
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", torch.jit.TracerWarning)  # type: ignore[attr-defined]
            torch.onnx.export(
                module,
                given,
                buffer,  # type: ignore[arg-type]
                dynamo=False,
                opset_version=opset,
                input_names=names_in,
                output_names=names_out,
                dynamic_axes={name: {0: "n"} for name in (*names_in, *names_out)},
            )
    except Exception as error:
        # the exporter has no common error class
        raise ChainError(f"{type(module).__name__}: torch cannot export it: {error}") from error
    model = buffer.getvalue()
    _check(model, module, given, names_in, tolerance)
    return model


def _check(
    model: bytes,
    module: nn.Module,
    given: tuple[Tensor, ...],
    names: Sequence[str],
    tolerance: float,
) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    count = len(given[0])
    rows = torch.arange(count + _MORE_ROWS) % count
    for arguments in (given, tuple(tensor[rows] for tensor in given)):
        expected = _outputs(module, arguments)
        feeds = {n: t.cpu().numpy() for n, t in zip(names, arguments, strict=True)}
        try:
            found = session.run(None, feeds)
        except Exception as error:
            raise ChainError(
                f"{type(module).__name__}: its model does not run on {len(arguments[0])} rows: "
                f"{error}"
            ) from error
        for index, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            if not _is_near(mine, theirs.float().numpy(), tolerance):
                raise ChainError(
                    f"{type(module).__name__}: output {index} of its model differs from torch's on "
                    f"{len(arguments[0])} rows; does it branch on its input or on the batch size?"
                )


def _check_rows(module: nn.Module, given: tuple[Tensor, ...]) -> None:
    counts = [tensor.shape[0] if tensor.ndim else 0 for tensor in given]
    if not counts or min(counts) < 1 or len(set(counts)) > 1:
        raise ChainError(
            f"{type(module).__name__}: example: expected inputs of one number of rows, 1 or more, "
            f"got {[tuple(tensor.shape) for tensor in given]}"
        )


def _is_near(found: NDArray[Any], reference: NDArray[np.float32], tolerance: float) -> bool:
    """Compare relative to the largest output; infinite numbers must be equal, NaN never is."""
    if found.shape != reference.shape:
        return False
    finite = np.isfinite(reference)
    largest = float(np.abs(reference[finite]).max(initial=1.0))
    equal = np.array_equal(found[~finite], reference[~finite])
    difference = float(np.abs(found[finite] - reference[finite]).max(initial=0.0))
    # not `difference > …`, which is False for NaN
    return equal and difference <= tolerance * largest


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
