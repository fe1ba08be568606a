"""Self-contained ONNX models: graph, tensors and metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import isfinite
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from aclearn.types import ActionSpec, EnvSpec
from aclearn.types.observation_spec import Observations, row_count
from compress.artifact import Artifact
from compress.errors import ChainError
from compress.graphs.onnx_action import MASK, add_action, output_name
from compress.graphs.onnx_graph import build_onnx, state_inputs
from compress.runtimes.onnx_runtime import exported_model, given_tensors, needs_export, new_session


def export_onnx(
    artifact: Artifact, metadata: Mapping[str, str] | None = None, *, spec: EnvSpec | None = None
) -> bytes:
    """A serialised ONNX model with its weights, which needs nothing of ours to play.

    Inputs are the leaves `[N, *shape]`, uint8 ones raw, and with action masks `action_mask [N, A]`.
    Outputs are `parameters [N, P]` and the environment's `action [N, …]` (`add_action`). The
    metadata have the artifact's version, generation, chain, digest and fidelity, the given entries,
    and as JSON how observations become leaves, the actions' parts with their bounds, and the
    state's parts.

    A policy with a memory has inputs `state_i [N, units]` float32 too, zeros where an episode
    begins, and outputs `next_state_i`, which are those of the next step.

    Args:
        spec: of the environment; None: it shows the leaves, and has no masks.

    Raises:
        ChainError: the artifact does not run in ONNX Runtime.
    """
    graph = artifact.graph
    if graph.runtime != "onnx":
        raise ChainError(f"{artifact.chain}: only chains that end in onnx can be exported")
    if needs_export(graph):
        model = onnx.load_model_from_string(exported_model(graph, artifact.tensors))
    else:
        model = onnx.load_model_from_string(build_onnx(graph))
        given = given_tensors(graph, artifact.tensors)
        for initialiser in model.graph.initializer:
            if initialiser.name in given:
                tensor = given[initialiser.name]
                initialiser.CopyFrom(numpy_helper.from_array(tensor, initialiser.name))
    spec = spec or EnvSpec(graph.architecture.observation, graph.architecture.action_spec)
    add_action(model, spec.action, masked=spec.masked)
    about = {
        "chain": artifact.chain,
        "generation": str(artifact.at.generation),
        "version": str(artifact.at.version),
        "architecture": graph.architecture.name,
        "digest": artifact.digest,
        "observation": json.dumps(_observation_parts(spec)),
        "action": json.dumps(_action_parts(spec.action)),
        "masked": json.dumps(spec.masked),
        "state": json.dumps(
            [
                {"input": name, "output": f"next_{name}", "units": units}
                for name, units in state_inputs(graph).items()
            ]
        ),
        **{f"fidelity.{name}": str(value) for name, value in vars(artifact.fidelity).items()},
        **(metadata or {}),
    }
    onnx.helper.set_model_props(model, {key: about[key] for key in sorted(about)})
    onnx.checker.check_model(model)
    serialised: bytes = model.SerializeToString()
    return serialised


def _observation_parts(spec: EnvSpec) -> list[dict[str, Any]]:
    """How each part of an observation of the environment's space becomes an input of the model."""
    leaves = spec.observation
    return [
        {
            "input": part.leaf,
            "input_shape": leaves[part.leaf].shape,
            "input_dtype": leaves[part.leaf].dtype,
            **{name: value for name, value in asdict(part).items() if name != "leaf"},
        }
        for part in spec.form.parts
    ]


def _action_parts(spec: ActionSpec) -> list[dict[str, Any]]:
    """Where each part of an action comes from; a bound that there is not is null."""
    return [
        {
            "output": output_name(part),
            **asdict(part),
            "low": [bound if isfinite(bound) else None for bound in part.low],
            "high": [bound if isfinite(bound) else None for bound in part.high],
        }
        for part in spec.parts
    ]


def run_onnx(
    model: bytes, observations: Observations, masks: NDArray[np.bool_] | None = None
) -> dict[str, NDArray[Any]]:
    """The outputs of a self-contained model by name, in a new session of one thread.

    Observations are leaf → `[N, *shape]`, masks `[N, A]`; each row begins an episode.
    """
    session = new_session(model)
    given = {**observations} if masks is None else {**observations, MASK: masks}
    rows = row_count(observations)
    for each in session.get_inputs():
        if each.name not in given:  # a part of the state
            given[each.name] = np.zeros((rows, *each.shape[1:]), np.float32)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))
