"""`aclearn export`: a run's policy as an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions import distribution_of
from aclearn.errors import EnvironmentFailure
from aclearn.rollout import Executable
from aclearn.runs import check_file, write_file
from aclearn.types import ActionSpec, Visited
from aclearn.types.nested import at
from compress import Artifact, ChainError, RefusedArtifact
from compress.artifact import LEAST_SCALE
from compress.export import export_onnx, run_onnx
from compress.graphs.int8_reference import IntegerExecutable
from compress.graphs.onnx_action import MASK, output_name
from compress.runtimes.onnx_runtime import OnnxExecutable, new_session
from compress.sequences import answers
from services.commands.offline_compression import (
    Halves,
    chain_of_words,
    compress_with,
    sample_spaces,
    torch_parameters,
    visit_run,
    with_runtime,
)
from services.evaluator.saved_policy import SavedRun, load_run
from services.policy.factory import warn_of_idle_links

#: Largest deviation of a model's output from torch's, as a share of the largest number. In int8 a
#: value between two steps may be rounded to the other one, in every layer.
_TOLERANCE, _INT8_TOLERANCE = 1e-4, 2e-2


def export_run(
    path: Path,
    to: Path,
    *,
    words: str = "",
    passes: int = 1,
    at: str | int = "newest",
    policy: str | None = None,
    force: bool = False,
) -> Artifact:
    """Write the run's policy, through a chain if given, as a self-contained ONNX model.

    First the model is run: its output must equal that of torch for the same graph and tensors
    (int8: in exact integers), and that of the actors' runtime. Its metadata have its distance to
    the policy. The file runs on any CPU: int8 weights have 7 bits by default.

    Links are fitted and compared on observations of the environment. Without links it is not made:
    random observations are compared.

    Args:
        policy: name of one of several.

    Raises:
        AclearnError: the file, the run or the chain cannot be used, or the model's output is wrong.
    """
    check_file(to, "--to", force=force)
    to = to.absolute()  # an environment may change the working directory
    run = load_run(path, at=at)
    artifact, model = exported(run, run.policy(policy).name, with_runtime(words), passes)
    write_file(to, model, "--to")
    return artifact


def exported(
    run: SavedRun, policy: str, chain: Sequence[Any] = (), passes: int = 1
) -> tuple[Artifact, bytes]:
    """A policy of a run through a chain, and its checked model; as `export_run`.

    Args:
        chain: items of a chain that ends in onnx; none: no compression.
    """
    saved = run.policies[policy]
    links = chain_of_words(chain or ["onnx"], any_cpu=True)
    if links.plan(saved.architecture).runtime != "onnx":
        raise ChainError(f"{links.id}: a model to export ends in onnx")
    warn_of_idle_links(links)
    visited = _visited(run, policy, links.id) if chain else sample_spaces(saved)
    artifact, executable = compress_with(saved, links, visited, passes)
    metadata = {"run": str(saved.config.run.name), "environment": saved.config.env.id}
    if run.config.policies:
        metadata["policy"] = policy
    model = export_onnx(artifact, metadata, spec=saved.spec)
    _check_model(model, artifact, executable, visited.others)
    return artifact, model


def _visited(run: SavedRun, policy: str, chain: str) -> Halves:
    try:
        return visit_run(run, policy)
    except EnvironmentFailure as error:
        raise EnvironmentFailure(
            f"--chain: {chain} needs observations of the run's environment; leave --chain out "
            f"to export without it ({error})"
        ) from error


def _check_model(
    model: bytes, artifact: Artifact, executable: Executable, visited: Visited
) -> None:
    """Raise `RefusedArtifact` unless the model computes the output of its graph and tensors."""
    graph, tensors = artifact.graph, artifact.tensors
    outputs = run_onnx(model, visited.observations, visited.masks)
    _check_actions(graph.architecture.action_spec, outputs, visited.masks)
    # the parameters do not depend on the mask
    masks = {} if visited.masks is None else {MASK: visited.masks[: visited.sequences]}
    found = answers(OnnxExecutable(new_session(model), masks), graph, visited)
    expected: NDArray[Any]
    if graph.precision == "int8":
        expected = answers(IntegerExecutable(graph, tensors), graph, visited)
        share = _INT8_TOLERANCE
    else:
        expected, share = torch_parameters(graph, tensors, visited), _TOLERANCE
    acting = answers(executable, graph, visited)
    for others, tolerance in ((expected, share), (acting, _TOLERANCE)):
        allowed = tolerance * max(LEAST_SCALE, float(np.abs(others).max()))
        if not np.allclose(found, others, rtol=0.0, atol=allowed):
            worst = float(np.abs(found - others).max())
            raise RefusedArtifact(
                f"{artifact.chain}: the model's output is off by {worst:.3g}, allowed is "
                f"{allowed:.3g}; it was not written"
            )


def _check_actions(
    spec: ActionSpec, outputs: Mapping[str, NDArray[Any]], masks: NDArray[np.bool_] | None
) -> None:
    """Raise `RefusedArtifact` unless a model's actions are those of its parameters."""
    distribution = distribution_of(spec)
    parameters = distribution.mask(outputs["parameters"], masks)
    expected = spec.to_env(distribution.mode(parameters))
    for part in spec.parts:
        found, by_us = outputs[output_name(part)], [at(action, part.path) for action in expected]
        if not np.allclose(found, np.array(by_us), rtol=1e-6, atol=1e-6):
            raise RefusedArtifact(
                f"the model's {output_name(part)} is not that of its parameters; it was not written"
            )
