"""The ONNX graph of a torch module of the user's own, whose weights can be swapped."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor, nn

from aclearn.errors import AclearnError
from aclearn.policies.users_network import output_of, random_observations
from aclearn.types import ObservationSpec

#: Of the operators; the graphs of aclearn's own layers have the same.
OPSET = 17
#: Rows of the example, and of the run that finds a frozen batch size.
_ROWS, _OTHER_ROWS = 2, 5
#: Largest difference to torch, as a share of the largest number or of 1.
_TOLERANCE = 1e-4
_PREFIX = "module."


class NotExportable(AclearnError):
    """A module that torch cannot export, or whose graph computes something else."""


def exported(module: nn.Module, observation: ObservationSpec, *, critic: str) -> tuple[bytes, str]:
    """A module's graph without weights, and why its weights cannot be swapped (empty: they can).

    The graph is float32 leaves, by name → `parameters` `[N, P]`. Each parameter that it needs is an
    initialiser of the parameter's name without numbers. It has been compared with torch for two
    sets of weights and two numbers of rows. Where weights cannot be swapped, the graph has those of
    `module`.

    Args:
        module: stays unchanged.
        observation: its leaves.
        critic: "v" or "q".

    Raises:
        NotExportable: torch cannot export it, or it differs for other observations.
    """
    made = copy.deepcopy(module).eval()
    named = dict(made.named_parameters())
    # the exporter merges parameters with equal numbers, such as biases of zeros
    _draw(named, seed=1)
    model = onnx.load_model_from_string(_export(made, observation, critic=critic))
    reason = _difference(model, made, observation, critic=critic)
    if reason:
        raise NotExportable(f"its ONNX graph {reason} (does it branch on its input?)")
    _draw(named, seed=2)
    for initialiser in model.graph.initializer:
        initialiser.name = initialiser.name.removeprefix(_PREFIX)
        if initialiser.name in named:
            numbers = named[initialiser.name].detach().numpy()
            initialiser.CopyFrom(numpy_helper.from_array(numbers, initialiser.name))
    for node in model.graph.node:
        node.input[:] = [name.removeprefix(_PREFIX) for name in node.input]
    if reason := _difference(model, made, observation, critic=critic):
        return _export(module, observation, critic=critic), f"with other weights it {reason}"
    for initialiser in model.graph.initializer:
        if initialiser.name in named:
            initialiser.ClearField("raw_data")
    serialised: bytes = model.SerializeToString(deterministic=True)
    return serialised, ""


class _ParametersOnly(nn.Module):
    """Leaves by position → the distribution's parameters, as the exporter wants it."""

    def __init__(self, module: nn.Module, leaves: tuple[str, ...], critic: str) -> None:
        super().__init__()
        self.module, self._leaves, self._critic = module, leaves, critic

    def forward(self, *observations: Tensor) -> Tensor:
        named = dict(zip(self._leaves, observations, strict=True))
        return output_of(self.module, named, critic=self._critic).parameters.float()


def _export(module: nn.Module, observation: ObservationSpec, *, critic: str) -> bytes:
    example = tuple(random_observations(observation, _ROWS).values())
    names, buffer = list(observation), io.BytesIO()
    try:
        with _exporting(), torch.no_grad():
            torch.onnx.export(
                _ParametersOnly(module, tuple(names), critic).eval(),
                example,
                buffer,  # type: ignore[arg-type]
                dynamo=False,
                opset_version=OPSET,
                input_names=names,
                output_names=["parameters"],
                dynamic_axes={name: {0: "N"} for name in (*names, "parameters")},
                do_constant_folding=False,  # it would rename transposed weights
            )
    except Exception as error:
        # the exporter has no common error class
        first = str(error).strip().partition("\n")[0]
        raise NotExportable(f"torch cannot export it to ONNX: {first}") from error
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


def _difference(
    model: onnx.ModelProto, module: nn.Module, observation: ObservationSpec, *, critic: str
) -> str:
    """How the model's output differs from the module's; empty if it does not."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # unused initialisers
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        # ONNX Runtime has no common error class
        return f"cannot be loaded: {_first_line(error)}"
    for rows in (_ROWS, _OTHER_ROWS):
        given = random_observations(observation, rows, seed=rows)
        with torch.no_grad():
            expected = output_of(module, given, critic=critic).parameters.float().numpy()
        needed = {tensor.name for tensor in session.get_inputs()}
        feeds = {name: leaf.numpy() for name, leaf in given.items() if name in needed}
        try:
            (found,) = session.run(None, feeds)
        except Exception as error:
            return f"cannot compute {rows} rows: {_first_line(error)}"
        if not _near(found, expected):
            return f"gives other parameters than torch for {rows} rows"
    return ""


def _near(found: NDArray[np.float32], expected: NDArray[np.float32]) -> bool:
    most = _TOLERANCE * max(1.0, float(np.abs(expected).max()))
    return found.shape == expected.shape and np.allclose(found, expected, rtol=0.0, atol=most)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _draw(parameters: Mapping[str, Tensor], *, seed: int) -> None:
    """Overwrite weights by random numbers of their usual size."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters.values():
            fan = max(1, parameter[0].numel()) if parameter.ndim > 1 else 4
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * fan**-0.5)
