"""Self-contained ONNX models: graph, tensors and metadata."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

from aclearn.types.observation_spec import Observations
from compress.artifact import Artifact
from compress.errors import ChainError
from compress.graphs.onnx_graph import build_onnx
from compress.runtimes.exported_onnx import exported_model, needs_export
from compress.runtimes.onnx_runtime import given_tensors


def export_onnx(artifact: Artifact, metadata: Mapping[str, str] | None = None) -> bytes:
    """A serialised ONNX model, leaves `[N, *shape]` → `parameters [N, P]`, with its weights.

    uint8 observations go in raw. The metadata has the artifact's version, generation, chain, digest
    and fidelity, and the given entries.

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
    about = {
        "chain": artifact.chain,
        "generation": str(artifact.at.generation),
        "version": str(artifact.at.version),
        "architecture": graph.architecture.name,
        "digest": artifact.digest,
        **{f"fidelity.{name}": str(value) for name, value in vars(artifact.fidelity).items()},
        **(metadata or {}),
    }
    onnx.helper.set_model_props(model, {key: about[key] for key in sorted(about)})
    onnx.checker.check_model(model)
    serialised: bytes = model.SerializeToString()
    return serialised


def run_onnx(model: bytes, observations: Observations) -> NDArray[np.float32]:
    """Parameters `[N, P]` of a self-contained model for leaf → `[N, *shape]`, in a new session."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    result: NDArray[np.float32] = session.run(None, dict(observations))[0]
    return result
