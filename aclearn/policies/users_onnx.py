"""The ONNX graph of a torch module of the user's own, whose weights can be swapped."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from aclearn.policies.module_spec import ModuleSpec
from aclearn.policies.onnx_export import NotExportable, difference, exported_by_torch
from aclearn.policies.users_network import acting_parts, random_observations

#: Rows of the example, and of the run that finds a frozen batch size.
_ROWS, _OTHER_ROWS = 2, 5
#: Steps of the examples of states.
_STEPS = 3
#: Largest difference to torch, as a share of the largest number or of 1.
_TOLERANCE = 1e-4
_PREFIX = "module."


def exported(module: nn.Module, spec: ModuleSpec) -> tuple[bytes, str]:
    """A module's graph without weights, and why its weights cannot be swapped (empty: they can).

    The graph is float32 `spec.inputs` → `numbers` `[N, spec.acting]`. Each parameter that it needs
    is an initialiser of the parameter's name without numbers. It has been compared with torch for
    two sets of weights and two numbers of rows, with states that the module reaches. Where weights
    cannot be swapped, the graph has those of `module`, which stays unchanged.

    Args:
        spec: of the module, without its graph.

    Raises:
        NotExportable: torch cannot export it, or it differs for other observations.
    """
    made = copy.deepcopy(module).eval()
    named = dict(made.named_parameters())
    # the exporter merges parameters with equal numbers, such as biases of zeros
    _draw(named, seed=1)
    model = onnx.load_model_from_string(_export(made, spec))
    reason = _difference(model, made, spec)
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
    if reason := _difference(model, made, spec):
        return _export(module, spec), f"with other weights it {reason}"
    for initialiser in model.graph.initializer:
        if initialiser.name in named:
            initialiser.ClearField("raw_data")
    serialised: bytes = model.SerializeToString(deterministic=True)
    return serialised, ""


class _Acting(nn.Module):
    """Leaves and state by position → the numbers that acting needs, as the exporter wants it."""

    def __init__(self, module: nn.Module, spec: ModuleSpec) -> None:
        super().__init__()
        self.module, self._spec = module, spec

    def forward(self, *given: Tensor) -> Tensor:
        parts, _ = acting_parts(self.module, self._spec, given)
        return torch.cat([part.float() for part in parts], 1) if len(parts) > 1 else parts[0]

    def inputs(self, rows: int) -> tuple[Tensor, ...]:
        """Random observations, and the state after some of them."""
        spec = self._spec
        state = [torch.zeros(rows, units) for units in spec.state_units]
        for seed in range(rows - _STEPS + 1, rows + 1):
            leaves = random_observations(spec.observation, rows, seed=seed)
            given = (*leaves.values(), *state)
            with torch.no_grad():
                (_, *state), _ = acting_parts(self.module, spec, given)
        return given


def _export(module: nn.Module, spec: ModuleSpec) -> bytes:
    acting = _Acting(module, spec).eval()
    return exported_by_torch(
        acting,
        acting.inputs(_ROWS),
        inputs=spec.inputs,
        outputs=["numbers"],
        fold_constants=False,  # the names of weights must stay
    )


def _difference(model: onnx.ModelProto, module: nn.Module, spec: ModuleSpec) -> str:
    acting = _Acting(module, spec)
    return difference(
        model.SerializeToString(),
        lambda batch: [acting(*batch)],
        [acting.inputs(rows) for rows in (_ROWS, _OTHER_ROWS)],
        inputs=spec.inputs,
        tolerance=_TOLERANCE,
    )


def _draw(parameters: Mapping[str, Tensor], *, seed: int) -> None:
    """Overwrite weights by random numbers of their usual size."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters.values():
            fan = max(1, parameter[0].numel()) if parameter.ndim > 1 else 4
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * fan**-0.5)
