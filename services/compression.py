"""`aclearn export` and `aclearn compress`: a saved policy through a chain, outside of training."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from aclearn.runs import check_file, write_file
from compress import (
    Artifact,
    ArtifactPolicy,
    ChainError,
    CompressorChain,
    Context,
    Distiller,
    Fidelity,
    OnnxPolicy,
    Policy,
    PolicyGraph,
    RefusedArtifact,
    parse_chain,
    parse_words,
)
from compress.artifact import LEAST_SCALE
from compress.export import export_onnx, run_onnx
from compress.graphs.graph_network import GraphNetwork
from compress.graphs.int8_reference import integer_logits
from services.play import SavedPolicy, load_policy, play, visit
from services.policies import warn_of_idle_links

_LOGGER = logging.getLogger(__name__)

#: Observations that chains are fitted on, and as many others that they are compared on.
_OBSERVATIONS = 512
#: Batch sizes of the table's latencies.
BATCH_SIZES = (1, 8, 32)
#: A model's logits may be so far from torch's, as a share of the largest. In int8 what lies on the
#: edge between two steps may be rounded to the other one, in every layer.
_TOLERANCE, _INT8_TOLERANCE = 1e-4, 2e-2
_SEED = 1_000_003


@dataclass(frozen=True)
class WayToAct:
    """One way to run the policy.

    Attributes:
        name: of the chain.
        artifact: with bytes, latencies and fidelity.
        returns: of its greedy episodes; empty when none were played.
    """

    name: str
    artifact: Artifact
    returns: Sequence[float]

    @property
    def mean_return(self) -> float | None:
        """Mean greedy return, None without episodes."""
        return float(np.mean(self.returns)) if self.returns else None


def compress_run(
    path: Path, words: str, *, episodes: int = 0, passes: int = 1, best: bool = False
) -> list[WayToAct]:
    """The run's policy in eager torch, in ONNX fp32, and through a chain.

    Args:
        path: the run folder.
        words: the chain, e.g. "prune=0.5,int8"; "onnx" is added to one that names no runtime.
        episodes: greedy episodes to play with each.
        passes: how often the policy goes through the chain; a student learns in each.
        best: the best checkpoint instead of the newest.

    Raises:
        AclearnError: the run or the chain cannot be used.
    """
    saved = load_policy(path, best=best)
    chain = _chain(_with_runtime(words))
    chain.plan(saved.architecture)
    warn_of_idle_links(chain)
    visited = _visited(saved)
    ways = []
    plain = {"eager torch fp32": _chain([]), "ONNX fp32": _chain(["onnx"])}
    for name, each in {**plain, chain.id: chain}.items():
        artifact, runtime = _compressed(saved, each, visited, passes if each is chain else 1)
        returns: Sequence[float] = ()
        if episodes:
            returns, _ = play(saved.config, runtime, episodes=episodes, greedy=True, seed=_SEED)
        ways.append(WayToAct(name, artifact, returns))
    return ways


def export_run(
    path: Path,
    to: Path,
    *,
    words: str = "",
    passes: int = 1,
    best: bool = False,
    force: bool = False,
) -> Artifact:
    """Write the run's policy, through a chain if one is given, as a self-contained ONNX model.

    Before it is written the model is run: its logits must be those that torch computes of the same
    graph and tensors, for int8 in exact integers, and those of the runtime that actors have. How
    far they are from the policy's is in the metadata. Nobody knows where the file will be run: int8
    weights have 7 bits, unless the chain says otherwise.

    Raises:
        AclearnError: the file, the run or the chain cannot be used, or the model does not answer as
            it must.
    """
    check_file(to, "--to", force=force)
    to = to.absolute()  # an environment may change the working directory
    saved = load_policy(path, best=best)
    items = _with_runtime(words) or ["onnx"]
    chain = _chain(items, any_processor=True)
    if chain.plan(saved.architecture).runtime != "onnx":
        raise ChainError(f"{chain.id}: a model to export ends in onnx")
    warn_of_idle_links(chain)
    visited = _visited(saved)
    artifact, runtime = _compressed(saved, chain, visited, passes)
    metadata = {"run": str(saved.config.run.name), "environment": saved.config.env.id}
    model = export_onnx(artifact, metadata)
    _check_model(model, artifact, runtime, visited.others)
    write_file(to, model, "--to")
    return artifact


def _check_model(
    model: bytes, artifact: Artifact, runtime: ArtifactPolicy, observations: NDArray[Any]
) -> None:
    """Raise `RefusedArtifact` unless the model computes what its graph and tensors say."""
    graph, tensors = artifact.graph, artifact.tensors
    expected: NDArray[Any]
    if graph.precision == "int8":
        expected, share = integer_logits(graph, tensors, observations), _INT8_TOLERANCE
    else:
        expected, share = _torch_logits(graph, tensors, observations), _TOLERANCE
    answers = run_onnx(model, observations)
    for others, tolerance in ((expected, share), (runtime.logits(observations), _TOLERANCE)):
        allowed = tolerance * max(LEAST_SCALE, float(np.abs(others).max()))
        if not np.allclose(answers, others, rtol=0.0, atol=allowed):
            worst = float(np.abs(answers - others).max())
            raise RefusedArtifact(
                f"{artifact.chain}: the model's logits are off by {worst:.3g}, allowed are "
                f"{allowed:.3g}; it was not written"
            )


def _chain(items: Sequence[Any], *, any_processor: bool = False) -> CompressorChain:
    # compared in the end, on other observations than those that links are fitted on
    return parse_chain(
        items, any_processor=any_processor, batch_sizes=BATCH_SIZES, fidelity_observations=0
    )


def _compressed(
    saved: SavedPolicy, chain: CompressorChain, visited: _Visited, passes: int
) -> tuple[Artifact, ArtifactPolicy]:
    """The artifact, with its distance to the policy on other observations, and what runs it."""
    context = Context(visited.for_links, seed=_SEED)
    policy = Policy.of(saved.architecture, saved.tensors, saved.at)
    for _ in range(passes):
        artifact = chain.compress(policy, context)
    if passes == 1:
        _warn_of_new_students(chain, context)
    runtime = ArtifactPolicy(saved.architecture)
    runtime.swap(artifact)
    fidelity = Fidelity.of(
        _torch_logits(policy.graph, policy.tensors, visited.others),
        runtime.logits(visited.others),
        saved.at.version,
    )
    compared = replace(artifact, fidelity=fidelity)
    return replace(compared, digest=compared.computed_digest()), runtime


def _warn_of_new_students(chain: CompressorChain, context: Context) -> None:
    """Say how little students have learned that went through the chain once."""
    for link in chain.links:
        if isinstance(link, Distiller) and (steps := context.memory(link.owner).get("steps")):
            _LOGGER.warning(
                "event=student_is_new chain=%s steps=%d detail='%s has learned in one pass; in a "
                "run it learns in every version, and --passes 100 is as much as 100 of them'",
                chain.id, steps, link.id,
            )  # fmt: skip


class _Visited(NamedTuple):
    """Observations of different games: links are fitted on the ones, compared on the others."""

    for_links: NDArray[Any]
    others: NDArray[Any]


def _visited(saved: SavedPolicy) -> _Visited:
    policy = OnnxPolicy(saved.architecture)
    policy.swap(saved.tensors)
    visited = visit(saved.config, policy, count=2 * _OBSERVATIONS, seed=_SEED)
    # environments take turns, and there is an even number of them
    return _Visited(visited[::2], visited[1::2])


def _torch_logits(
    graph: PolicyGraph, tensors: Mapping[str, NDArray[Any]], observations: NDArray[Any]
) -> NDArray[np.float32]:
    # what is stored in halves is computed in fp32, as in the model
    network = GraphNetwork(graph, with_value=False).load(tensors).eval()
    with torch.inference_mode():
        logits, _ = network(torch.from_numpy(observations.copy()))
    result: NDArray[np.float32] = logits.numpy()
    return result


def _with_runtime(words: str) -> list[Any]:
    """The items of the chain; what ends without a runtime ends in onnx."""
    items = parse_words(words)
    if items and items[-1] not in ("onnx", "torchscript"):
        items.append("onnx")
    return items
