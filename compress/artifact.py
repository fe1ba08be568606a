"""Artifacts: compressed policies that actors run, and their check."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from aclearn.distributions import Distribution
from aclearn.policies import Architecture
from aclearn.types import PolicyVersion
from compress.errors import RefusedArtifact, RefusedTensors
from compress.graphs.policy_graph import PolicyGraph, check_tensors

#: Tolerances are shares of the largest parameter, but at least of this: a new policy's parameters
#: are hundredths.
LEAST_SCALE = 1e-2


@dataclass(frozen=True)
class Fidelity:
    """Difference between a compressed policy μ and its original π on visited observations.

    With a memory both go through sequences of them, each with a state of its own.

    Attributes:
        kl_mean: mean of KL(π ‖ μ) in nats (AcceRL eq. 5).
        kl_variance: its variance, in nats².
        agreement: share of observations on which both prefer the same action.
        observations: number of compared observations; 0: not measured.
    """

    kl_mean: float = 0.0
    kl_variance: float = 0.0
    kl_max: float = 0.0
    agreement: float = 1.0
    observations: int = 0
    version: int = -1

    @classmethod
    def of(
        cls,
        distribution: Distribution,
        original: NDArray[np.float32],
        compressed: NDArray[np.float32],
        version: int,
        masks: NDArray[np.bool_] | None = None,
    ) -> Fidelity:
        """Compare two policies' parameters `[N, P]` on the same observations.

        `masks` `[N, A]` are the allowed actions; the comparison leaves the others out. None: all.
        """
        if len(original) == 0:
            return cls(version=version)
        original, compressed = (distribution.mask(p, masks) for p in (original, compressed))
        kl = distribution.kl(original, compressed)
        same = distribution.same_mode(original, compressed)
        return cls(
            float(kl.mean()), float(kl.var()), float(kl.max()), float(same.mean()), len(kl), version
        )


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compressed policy that an actor can check and run.

    Attributes:
        at: generation and version of the uncompressed weights.
        chain: id of the chain, e.g. "prune=0.5>int8>onnx"; "none" is the uncompressed policy.
        original: digest of the uncompressed architecture.
        tensors: by the names of `graph.tensors()`.
        probe_parameters: `[N, P]` float32, the compressor's outputs for them; with a memory as one
            sequence.
        fidelity: to the original, with `min_action_prob`; measured at `fidelity.version`, since not
            every version is compared.
        latency_ms: milliseconds per call by batch size, one thread, on the compressor's machine.
    """

    at: PolicyVersion
    chain: str
    original: str
    graph: PolicyGraph
    tensors: Mapping[str, NDArray[Any]]
    probe_observations: Mapping[str, NDArray[Any]]
    probe_parameters: NDArray[np.float32]
    fidelity: Fidelity
    latency_ms: Mapping[int, float]
    min_action_prob: float
    digest: str = ""

    @property
    def bytes(self) -> int:
        """Bytes of the tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def computed_digest(self) -> str:
        """32 hexadecimal digits over everything but `digest`."""
        about: dict[str, Any] = {
            "at": [self.at.generation, self.at.version],
            "chain": self.chain,
            "original": self.original,
            "graph": [self.graph.architecture.name, self.graph.digest()],
            "fidelity": vars(self.fidelity),
            "latency_ms": {str(size): ms for size, ms in sorted(self.latency_ms.items())},
            "min_action_prob": self.min_action_prob,
        }
        arrays = {**self.tensors, "probe_parameters": self.probe_parameters}
        arrays |= {f"probe.{name}": leaf for name, leaf in self.probe_observations.items()}
        # xxh3 detects accidents; sockets have keys against attacks. SHA-256 of all weights takes
        # longer than their quantisation, and CRC-32 took a tenth of a refresh.
        about["arrays"] = {
            name: [
                str(array.dtype),
                list(array.shape),
                xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).data),
            ]
            for name, array in arrays.items()
        }
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def check_artifact(artifact: Artifact, architecture: Architecture) -> None:
    """Raise `RefusedArtifact` unless it is undamaged, for `architecture`, and fits its graph."""
    mine, its = architecture, artifact.graph.architecture
    if artifact.original != mine.digest():
        raise RefusedArtifact(
            f"artifact {artifact.chain}: of architecture {artifact.original}, expected "
            f"{mine.digest()}"
        )
    if its.spaces != mine.spaces:
        raise RefusedArtifact(f"artifact {artifact.chain}: {its.spaces}, expected {mine.spaces}")
    if list(artifact.probe_observations) != list(mine.observation):
        raise RefusedArtifact(
            f"artifact {artifact.chain}: {len(artifact.probe_observations)} leaves in its probe, "
            f"expected {', '.join(mine.observation)}"
        )
    if artifact.computed_digest() != artifact.digest:
        raise RefusedArtifact(f"artifact {artifact.chain}: damaged, its digest differs")
    choices = max(mine.action_spec.counts, default=0)
    if not 0.0 <= artifact.min_action_prob * choices < 1.0:
        raise RefusedArtifact(
            f"artifact {artifact.chain}: min_action_prob {artifact.min_action_prob} for each of "
            f"{choices} actions; expected less than {1 / choices:.3g}"
        )
    try:
        check_tensors(artifact.graph, artifact.tensors)
    except RefusedTensors as error:
        raise RefusedArtifact(f"artifact {artifact.chain}: {error}") from error
