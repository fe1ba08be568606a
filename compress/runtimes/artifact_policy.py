"""A policy that executes artifacts, each checked by its probe before it acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions import Distribution, distribution_of
from aclearn.policies import Architecture
from compress.artifact import LEAST_SCALE, Artifact, check_artifact
from compress.errors import RefusedArtifact
from compress.runtimes.graph_cache import GraphCache
from compress.runtimes.protocols import Executable

#: How far a probe's logits may be from what the compressor saw, as a share of their largest: other
#: processors round otherwise, and in int8 a rounding is a whole step.
_TOLERANCES = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 5e-2, "int8": 5e-2}


def check_probe(artifact: Artifact, executable: Executable) -> None:
    """Raise `RefusedArtifact` unless the executable gives the probe's logits.

    The cheapest complete guard: it sees mixed weights, another processor's arithmetic and a wrong
    graph alike.
    """
    expected = artifact.probe_logits
    if expected.size == 0 or not np.isfinite(expected).all():
        raise RefusedArtifact(
            f"artifact {artifact.chain}: its probe says nothing; expected finite logits of one "
            f"observation at least, got shape {expected.shape}"
        )
    logits = executable.logits(artifact.probe_observations)
    tolerance = _TOLERANCES[artifact.graph.precision] * max(LEAST_SCALE, np.abs(expected).max())
    if logits.shape != expected.shape or not np.allclose(
        logits, expected, rtol=0.0, atol=tolerance
    ):
        raise RefusedArtifact(
            f"artifact {artifact.chain}: the probe's logits differ from those of the compressor by "
            f"more than {tolerance:.3g}; does this processor compute int8 otherwise?"
        )


@dataclass(frozen=True, eq=False)
class MinProbExecutable:
    """One artifact's executable with its floor mixed in."""

    uncompressed: Executable
    min_action_prob: float
    distribution: Distribution

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`, the floor mixed in."""
        logits = self.uncompressed.logits(observations)
        return self.distribution.with_min_action_prob(logits, self.min_action_prob)


class ArtifactPolicy:
    """A runtime for artifacts, whatever their graph.

    Args:
        architecture: of the uncompressed policy.
        threads: of the runtime.
    """

    def __init__(self, architecture: Architecture, *, threads: int = 1) -> None:
        self._architecture = architecture
        self._distribution = distribution_of(architecture.action_spec)
        self._graphs = GraphCache(threads=threads)
        self._executable: MinProbExecutable | None = None
        self.chain = "none"

    def swap(self, artifact: Artifact) -> None:
        """Run this artifact from the next call on, whole or not at all.

        Raises:
            RefusedArtifact: it is damaged, of another policy, cannot be run, or its probe fails;
                the old one goes on.
        """
        check_artifact(artifact, self._architecture)
        try:
            executable = self._graphs.executable(artifact.graph, artifact.tensors)
            check_probe(artifact, executable)
        except RefusedArtifact:
            raise
        except Exception as error:
            # each runtime has errors of its own for a graph that it does not know how to compute
            raise RefusedArtifact(f"artifact {artifact.chain}: cannot be run: {error!r}") from error
        self._executable = MinProbExecutable(
            executable, artifact.min_action_prob, self._distribution
        )
        self.chain = artifact.chain

    @property
    def executable(self) -> MinProbExecutable:
        """The artifact of the last swap; needs a `swap` before."""
        if self._executable is None:
            raise RuntimeError("no artifact yet: call swap first")
        return self._executable

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`, the floor mixed in.

        Raises:
            RuntimeError: there was no `swap` yet.
        """
        return self.executable.logits(observations)
