"""torch modules as ONNX models by torch's exporter, and the comparison of both."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aclearn.errors import AclearnError

#: Version of the operators; the graphs of aclearn's own layers have the same.
_OPSET = 17


class NotExportable(AclearnError):
    """A module that torch cannot export, or whose graph computes something else."""


def exported_by_torch(
    module: nn.Module,
    example: tuple[Tensor, ...],
    *,
    inputs: Sequence[str],
    outputs: Sequence[str],
    fold_constants: bool = True,
) -> bytes:
    """A serialised ONNX model; the first dimension of every input and output is free.

    Args:
        module: in evaluation mode.
        example: its inputs, each `[N, …]`.
        fold_constants: compute what no input changes; renames transposed weights.

    Raises:
        NotExportable: torch cannot export it.
    """
    buffer = io.BytesIO()
    try:
        with _exporting(), torch.no_grad():
            torch.onnx.export(
                module,
                example,
                buffer,  # type: ignore[arg-type]
                dynamo=False,
                opset_version=_OPSET,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_axes={name: {0: "N"} for name in (*inputs, *outputs)},
                do_constant_folding=fold_constants,
            )
    except Exception as error:
        # the exporter has no common error class
        raise NotExportable(f"torch cannot export it to ONNX: {_first_line(error)}") from error
    return buffer.getvalue()


@contextmanager
def _exporting() -> Iterator[None]:
    """No warnings of the exporter, and no kernels that it does not know."""
    fast_attention = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            # it warns that upstream prefers the exporter that needs a further package, and of what
            # may differ for other observations, which is compared
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_attention)


def difference(
    model: bytes,
    compute: Callable[[tuple[Tensor, ...]], Sequence[Tensor]],
    batches: Sequence[tuple[Tensor, ...]],
    *,
    inputs: Sequence[str],
    tolerance: float,
) -> str:
    """How a model's outputs differ from torch's, as the rest of a sentence; empty if they do not.

    Args:
        batches: inputs to compare on, each `[N, …]`; another N finds a frozen batch size.
        tolerance: largest difference, relative to the largest output or to 1.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # unused initialisers
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # ONNX Runtime has no common error class
        return f"cannot be loaded: {_first_line(error)}"
    needed = {tensor.name for tensor in session.get_inputs()}
    for batch in batches:
        rows = f"{len(batch[0])} rows"
        with torch.no_grad():
            expected = compute(batch)
        feeds = {
            name: tensor.cpu().numpy()
            for name, tensor in zip(inputs, batch, strict=True)
            if name in needed
        }
        try:
            found = session.run(None, feeds)
        except Exception as error:
            return f"cannot compute {rows}: {_first_line(error)}"
        for index, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            if not _is_near(mine, theirs.float().cpu().numpy(), tolerance):
                return f"differs from torch in output {index} on {rows}"
    return ""


def _is_near(found: NDArray[Any], reference: NDArray[np.float32], tolerance: float) -> bool:
    """Compare relative to the largest output; infinite numbers must be equal, NaN never is."""
    if found.shape != reference.shape:
        return False
    finite = np.isfinite(reference)
    largest = float(np.abs(reference[finite]).max(initial=1.0))
    equal = np.array_equal(found[~finite], reference[~finite])
    distance = float(np.abs(found[finite] - reference[finite]).max(initial=0.0))
    # not `distance > …`, which is False for NaN
    return equal and distance <= tolerance * largest


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
