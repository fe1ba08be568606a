"""Artifacts: what an actor can run, with what is known of it, and the check before it does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from aclearn.distributions import log_softmax
from aclearn.policies import Architecture
from aclearn.types import PolicyVersion
from compress.errors import RefusedArtifact, RefusedTensors
from compress.graph import PolicyGraph, check_tensors
from compress.optimised import Skeleton, skeleton_of
from compress.runtime import BriefSession, Executable, OnnxExecutable

_Made = TypeVar("_Made")

#: How far a probe's logits may be from what the compressor saw, as a share of their largest: other
#: processors round otherwise, and in int8 a rounding is a whole step.
_TOLERANCES = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 5e-2, "int8": 5e-2}
#: What the largest of some logits counts as at least where they are compared: a new policy's are
#: hundredths, and its next version's too.
LEAST_SCALE = 1e-2
#: Executables' graphs that a runtime keeps; a chain that is switched comes back.
_GRAPHS_KEPT = 4


@dataclass(frozen=True)
class Fidelity:
    """How near a compressed policy μ is to its original π, on visited observations.

    Attributes:
        kl_mean: mean of KL(π ‖ μ) in nats (AcceRL eq. 5).
        kl_variance: its variance, in nats².
        kl_max: its largest value.
        agreement: share of observations on which both prefer the same action.
        observations: how many were looked at; 0: nothing was measured.
        version: the policy version at which it was measured.
    """

    kl_mean: float = 0.0
    kl_variance: float = 0.0
    kl_max: float = 0.0
    agreement: float = 1.0
    observations: int = 0
    version: int = -1

    @classmethod
    def of(
        cls, original: NDArray[np.float32], compressed: NDArray[np.float32], version: int
    ) -> Fidelity:
        """Of two policies' logits `[N, A]` on the same observations."""
        if len(original) == 0:
            return cls(version=version)
        log_pi, log_mu = (
            log_softmax(logits.astype(np.float64)) for logits in (original, compressed)
        )
        kl = np.sum(np.exp(log_pi) * (log_pi - log_mu), axis=1).clip(min=0.0)
        same = original.argmax(axis=1) == compressed.argmax(axis=1)
        return cls(
            float(kl.mean()), float(kl.var()), float(kl.max()), float(same.mean()), len(kl), version
        )


@dataclass(frozen=True, eq=False)
class Artifact:
    """A compressed policy that an actor can check and run.

    Attributes:
        at: epoch and version of the weights that it was made from.
        chain: id of the chain, e.g. "prune=0.5>int8>onnx"; "none" is the uncompressed policy.
        original: digest of the uncompressed architecture.
        graph: how it is computed.
        tensors: by the names of `graph.tensors()`.
        probe_observations: `[P, *shape]`.
        probe_logits: `[P, A]` float32 that the compressor's runtime gave for them.
        fidelity: to the original, on visited observations, floor included; measured at
            `fidelity.version`, since not every version is compared.
        latency_ms: milliseconds a call by batch size, one thread, where it was made.
        floor: least probability that every action keeps.
        digest: of all of the above.
    """

    at: PolicyVersion
    chain: str
    original: str
    graph: PolicyGraph
    tensors: Mapping[str, NDArray[Any]]
    probe_observations: NDArray[Any]
    probe_logits: NDArray[np.float32]
    fidelity: Fidelity
    latency_ms: Mapping[int, float]
    floor: float
    digest: str = ""

    @property
    def bytes(self) -> int:
        """Size of the tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def computed_digest(self) -> str:
        """32 hexadecimal digits over everything but `digest`."""
        about: dict[str, Any] = {
            "at": [self.at.epoch, self.at.version],
            "chain": self.chain,
            "original": self.original,
            "graph": [self.graph.architecture.name, self.graph.digest()],
            "fidelity": vars(self.fidelity),
            "latency_ms": {str(size): ms for size, ms in sorted(self.latency_ms.items())},
            "floor": self.floor,
        }
        arrays = {**self.tensors, "probe": self.probe_observations, "logits": self.probe_logits}
        # A checksum of each array: it is accidents that are looked for (sockets have keys against
        # anything else), and SHA-256 of all weights would take longer than to quantise them; CRC-32
        # took a tenth of a refresh.
        about["arrays"] = {
            name: [
                str(array.dtype),
                list(array.shape),
                xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).data),
            ]
            for name, array in arrays.items()
        }
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]


def with_floor(logits: NDArray[np.float32], floor: float) -> NDArray[np.float32]:
    """Logits `[N, A]` of π mixed with the uniform policy: no action is less probable than `floor`.

    p' = (1 − A·floor) p + floor; floor · A must be below 1, which is not checked here. What is
    sampled from the result is what the correction must know as the behaviour policy: an action of
    probability zero could never be learned.
    """
    if floor <= 0.0:
        return logits
    actions = logits.shape[-1]
    probabilities = np.exp(log_softmax(logits))
    mixed: NDArray[np.float32] = np.log((1.0 - actions * floor) * probabilities + floor)
    return mixed.astype(np.float32, copy=False)


def check_artifact(artifact: Artifact, architecture: Architecture) -> None:
    """Raise `RefusedArtifact` unless it is undamaged, for `architecture`, and fits its graph."""
    mine, its = architecture, artifact.graph.architecture
    if artifact.original != mine.digest():
        raise RefusedArtifact(
            f"artifact {artifact.chain}: of architecture {artifact.original}, expected "
            f"{mine.digest()}"
        )
    if (its.observation_shape, its.observation_dtype, its.actions) != (
        mine.observation_shape,
        mine.observation_dtype,
        mine.actions,
    ):
        raise RefusedArtifact(
            f"artifact {artifact.chain}: {its.observation_dtype} {its.observation_shape} → "
            f"{its.actions} actions, expected {mine.observation_dtype} {mine.observation_shape} → "
            f"{mine.actions}"
        )
    if artifact.computed_digest() != artifact.digest:
        raise RefusedArtifact(f"artifact {artifact.chain}: damaged, its digest differs")
    if not 0.0 <= artifact.floor * mine.actions < 1.0:
        raise RefusedArtifact(
            f"artifact {artifact.chain}: a floor {artifact.floor} for each of {mine.actions} "
            f"actions; expected less than {1 / mine.actions:.3g}"
        )
    try:
        check_tensors(artifact.graph, artifact.tensors)
    except RefusedTensors as error:
        raise RefusedArtifact(f"artifact {artifact.chain}: {error}") from error


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


class GraphCache:
    """Makes executables; keeps the graphs that it has built, since only their tensors change.

    Args:
        threads: of the runtime.
    """

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._skeletons: dict[str, Skeleton] = {}
        self._brief: dict[str, BriefSession] = {}
        self._traced: dict[str, bytes] = {}

    def executable(
        self, graph: PolicyGraph, tensors: Mapping[str, NDArray[Any]], *, brief: bool = False
    ) -> Executable:
        """The graph with these tensors, ready to run; they must fit (see `check_tensors`).

        Args:
            graph: what to run.
            tensors: by the names of `graph.tensors()`.
            brief: for a few observations only: ready at once, slower to run; the tensors must not
                be written any more.
        """
        if graph.runtime != "onnx":
            # imported here: who runs ONNX never pays for torch
            from compress.torch_runtime import TorchExecutable, trace

            if graph.runtime == "torch":
                return TorchExecutable(graph, tensors)
            traced = self._kept(self._traced, graph, lambda: trace(graph))
            return TorchExecutable(graph, tensors, traced=traced)
        if brief:
            session = self._kept(
                self._brief, graph, lambda: BriefSession(graph, threads=self._threads)
            )
            return session.executable(tensors)
        skeleton = self._kept(self._skeletons, graph, lambda: skeleton_of(graph))
        return OnnxExecutable(skeleton, graph, tensors, threads=self._threads)

    @staticmethod
    def _kept(made: dict[str, _Made], graph: PolicyGraph, make: Callable[[], _Made]) -> _Made:
        """What was made for the graph, or is made now; the one made first is forgotten."""
        digest = graph.digest()
        if digest not in made:
            made[digest] = make()
            if len(made) > _GRAPHS_KEPT:
                del made[next(iter(made))]
        return made[digest]


@dataclass(frozen=True, eq=False)
class FlooredExecutable:
    """One artifact's executable with its floor mixed in."""

    plain: Executable
    floor: float

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`, the floor mixed in."""
        return with_floor(self.plain.logits(observations), self.floor)


class ArtifactPolicy:
    """A runtime for artifacts, whatever their graph.

    Args:
        architecture: of the uncompressed policy.
        threads: of the runtime.
    """

    def __init__(self, architecture: Architecture, *, threads: int = 1) -> None:
        self._architecture = architecture
        self._graphs = GraphCache(threads=threads)
        self._executable: FlooredExecutable | None = None
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
        self._executable = FlooredExecutable(executable, artifact.floor)
        self.chain = artifact.chain

    @property
    def executable(self) -> FlooredExecutable:
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
