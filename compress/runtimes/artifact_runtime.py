"""Artifacts as executables, each checked by its probe before it acts."""

from __future__ import annotations

import numpy as np

from aclearn.policies import Architecture
from aclearn.rollout import Executable
from aclearn.types import Visited
from compress.artifact import LEAST_SCALE, Artifact, check_artifact
from compress.errors import RefusedArtifact
from compress.runtimes.graph_cache import GraphCache
from compress.sequences import answers

#: Largest difference of a probe's parameters, as a share of the largest parameter: other CPUs
#: round differently, in int8 by a whole step.
_TOLERANCES = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 5e-2, "int8": 5e-2}


def check_probe(artifact: Artifact, executable: Executable) -> None:
    """Raise `RefusedArtifact` unless the executable reproduces the probe's parameters.

    To a policy with a memory its observations are a sequence of one environment.

    This finds mixed weights, another CPU's arithmetic and a wrong graph.
    """
    expected = artifact.probe_parameters
    if expected.size == 0 or not np.isfinite(expected).all():
        raise RefusedArtifact(
            f"artifact {artifact.chain}: its probe is unusable; expected finite parameters for at "
            f"least one observation, got shape {expected.shape}"
        )
    probe = Visited.probe(artifact.probe_observations, artifact.graph.state)
    parameters = answers(executable, artifact.graph, probe)
    tolerance = _TOLERANCES[artifact.graph.precision] * max(LEAST_SCALE, np.abs(expected).max())
    if parameters.shape != expected.shape or not np.allclose(
        parameters, expected, rtol=0.0, atol=tolerance
    ):
        raise RefusedArtifact(
            f"artifact {artifact.chain}: the probe's parameters differ from the compressor's by "
            f"more than {tolerance:.3g}; does this CPU compute int8 differently?"
        )


class ArtifactRuntime:
    """Makes executables of artifacts of the uncompressed policy's `architecture`."""

    def __init__(self, architecture: Architecture, *, threads: int = 1) -> None:
        self._architecture = architecture
        self._graphs = GraphCache(threads=threads)

    def load(self, artifact: Artifact) -> Executable:
        """The artifact as an executable; `act` applies its `min_action_prob`.

        Raises:
            RefusedArtifact: it is damaged, of another policy, cannot be run, or its probe fails.
        """
        check_artifact(artifact, self._architecture)
        try:
            executable = self._graphs.executable(artifact.graph, artifact.tensors)
            check_probe(artifact, executable)
        except RefusedArtifact:
            raise
        except Exception as error:
            # runtimes have no common error class
            raise RefusedArtifact(f"artifact {artifact.chain}: cannot be run: {error!r}") from error
        return executable
