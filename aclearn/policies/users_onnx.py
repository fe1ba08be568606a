"""The ONNX graph of a torch module of the user's own, whose weights can be swapped."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from aclearn.policies.onnx_export import NotExportable, difference, exported_by_torch
from aclearn.policies.users_network import output_of, random_observations
from aclearn.types import ObservationSpec

#: Rows of the example, and of the run that finds a frozen batch size.
_ROWS, _OTHER_ROWS = 2, 5
#: Largest difference to torch, as a share of the largest number or of 1.
_TOLERANCE = 1e-4
_PREFIX = "module."


def exported(module: nn.Module, observation: ObservationSpec, *, critic: str) -> tuple[bytes, str]:
    """A module's graph without weights, and why its weights cannot be swapped (empty: they can).

    The graph is float32 leaves, by name → `parameters` `[N, P]`. Each parameter that it needs is an
    initialiser of the parameter's name without numbers. It has been compared with torch for two
    sets of weights and two numbers of rows. Where weights cannot be swapped, the graph has those of
    `module`, which stays unchanged.

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
    return exported_by_torch(
        _ParametersOnly(module, (*observation,), critic).eval(),
        (*random_observations(observation, _ROWS).values(),),
        inputs=[*observation],
        outputs=["parameters"],
        fold_constants=False,  # the names of weights must stay
    )


def _difference(
    model: onnx.ModelProto, module: nn.Module, observation: ObservationSpec, *, critic: str
) -> str:
    parameters = _ParametersOnly(module, (*observation,), critic)
    batches = [random_observations(observation, n, seed=n).values() for n in (_ROWS, _OTHER_ROWS)]
    return difference(
        model.SerializeToString(),
        lambda batch: [parameters(*batch)],
        [(*batch,) for batch in batches],
        inputs=[*observation],
        tolerance=_TOLERANCE,
    )


def _draw(parameters: Mapping[str, Tensor], *, seed: int) -> None:
    """Overwrite weights by random numbers of their usual size."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters.values():
            fan = max(1, parameter[0].numel()) if parameter.ndim > 1 else 4
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * fan**-0.5)
