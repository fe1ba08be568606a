"""`aclearn export` and `aclearn compress`: a saved policy through a chain, outside of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import CheckpointError
from aclearn.runs import write_atomically
from compress import (
    Artifact,
    ArtifactPolicy,
    ChainError,
    CompressorChain,
    Context,
    OnnxPolicy,
    Policy,
    parse_chain,
    parse_words,
)
from compress.chain import original_logits
from compress.export import export_onnx, run_onnx
from services.play import SavedPolicy, load_policy, play, visit

#: Observations that chains are calibrated on and compared on.
_OBSERVATIONS = 512
#: Batch sizes of the table's latencies.
BATCH_SIZES = (1, 8, 32)
#: An fp32 model's logits may be so far from torch's, as a share of the largest.
_TOLERANCE = 1e-4
_SEED = 1_000_003


@dataclass(frozen=True)
class TableRow:
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
) -> list[TableRow]:
    """The run's policy in eager torch, in ONNX fp32, and through a chain.

    Args:
        path: the run folder.
        words: the chain, e.g. "prune=0.5,int8,onnx"; "onnx" is added where int8 needs it.
        episodes: greedy episodes to play with each.
        passes: how often the policy goes through the chain; a student learns in each.
        best: the best checkpoint instead of the newest.

    Raises:
        AclearnError: the run or the chain cannot be used.
    """
    saved = load_policy(path, best=best)
    chain = _chain(_with_runtime(words))
    chain.plan(saved.architecture)
    visited = _visited(saved)
    rows = []
    plain = {"eager torch fp32": _chain([]), "ONNX fp32": _chain(["onnx"])}
    for name, each in {**plain, chain.id: chain}.items():
        artifact = _compressed(saved, each, visited, passes if each is chain else 1)
        returns: Sequence[float] = ()
        if episodes:
            runtime = ArtifactPolicy(saved.architecture)
            runtime.swap(artifact)
            returns, _ = play(saved.config, runtime, episodes=episodes, greedy=True, seed=_SEED)
        rows.append(TableRow(name, artifact, returns))
    return rows


def export_run(
    path: Path, to: Path, *, words: str = "", passes: int = 1, best: bool = False
) -> Artifact:
    """Write the run's policy, through a chain if one is given, as a self-contained ONNX model.

    The file is read back and run. Without compression its logits must be torch's; with compression
    they must be those of the artifact, whose distance to the policy is in the metadata.

    Raises:
        AclearnError: the run or the chain cannot be used, or the model does not answer as it must.
    """
    saved = load_policy(path, best=best)
    items = _with_runtime(words) or ["onnx"]
    chain = _chain(items)
    if chain.plan(saved.architecture).runtime != "onnx":
        raise ChainError(f"{chain.id}: a model to export ends in onnx")
    visited = _visited(saved)
    artifact = _compressed(saved, chain, visited, passes)
    metadata = {"run": str(saved.config.run.name), "environment": saved.config.env.id}
    write_atomically(to, export_onnx(artifact, metadata))
    answers = run_onnx(to.read_bytes(), visited)
    runtime = ArtifactPolicy(saved.architecture)
    runtime.swap(artifact)
    expected = _torch_logits(saved, visited) if chain.id == "onnx" else runtime.logits(visited)
    allowed = _TOLERANCE * max(1.0, float(np.abs(expected).max()))
    if not np.allclose(answers, expected, rtol=0.0, atol=allowed):
        worst = float(np.abs(answers - expected).max())
        raise CheckpointError(f"{to}: the model's logits are off by {worst:.3g}; do not use it")
    return artifact


def _chain(items: Sequence[Any]) -> CompressorChain:
    return parse_chain(items, batch_sizes=BATCH_SIZES, fidelity_observations=_OBSERVATIONS)


def _compressed(
    saved: SavedPolicy, chain: CompressorChain, visited: NDArray[Any], passes: int
) -> Artifact:
    context = Context(visited, seed=_SEED)
    policy = Policy.of(saved.architecture, saved.tensors, saved.at)
    for _ in range(passes):
        artifact = chain.compress(policy, context)
    return artifact


def _visited(saved: SavedPolicy) -> NDArray[Any]:
    policy = OnnxPolicy(saved.architecture)
    policy.swap(saved.tensors)
    return visit(saved.config, policy, count=_OBSERVATIONS, seed=_SEED)


def _torch_logits(saved: SavedPolicy, visited: NDArray[Any]) -> NDArray[np.float32]:
    context = Context()
    context.begin(Policy.of(saved.architecture, saved.tensors, saved.at))
    return original_logits(context, visited)


def _with_runtime(words: str) -> list[Any]:
    """The items of the chain; what ends without a runtime ends in onnx."""
    items = parse_words(words)
    if items and items[-1] not in ("onnx", "torchscript"):
        items.append("onnx")
    return items
