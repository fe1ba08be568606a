"""Where policies that act come from: a trainer's weights, or a compressor's artifacts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from aclearn.config import Config
from aclearn.policies import Architecture
from aclearn.shared_weights import HostMemory
from aclearn.types import PolicyVersion
from aclearn.wire import ArtifactReply, ArtifactRequest, Message, Peer, Weights, WeightsRequest
from compress import ArtifactPolicy, PolicyRuntime
from compress.runtimes.protocols import Executable
from services.runtime.artifact_messages import artifact_of
from services.runtime.shared_weights import SharedWeightsClient


@dataclass(frozen=True, eq=False)
class PolicySnapshot:
    """One policy that acts: never changes, so that what it computes is by what it names.

    Attributes:
        executable: computes its logits.
        at: its version.
        chain: id of the compressor chain behind it; "none" for the uncompressed policy.
    """

    executable: Executable
    at: PolicyVersion
    chain: str = "none"

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`; in any thread."""
        return self.executable.logits(observations)


class PolicySource(Protocol):
    """Where policies come from, and what is done with one."""

    @property
    def silent(self) -> bool:
        """Whether `look` finds what is new, so that nobody has to be asked."""

    @property
    def compressed(self) -> bool:
        """Whether the uncompressed policy can be asked for in place of a refused one."""

    def follow(self, peer: Peer) -> None:
        """The policies are `peer`'s from now on."""

    def look(self, known: PolicyVersion) -> tuple[PolicyVersion, Any] | None:
        """Something newer than `known` that can be had without asking, and its version."""

    def question(self, known: PolicyVersion, *, uncompressed: bool) -> Message:
        """Asks for something newer than `known`, and that it be the uncompressed policy."""

    def version(self, message: Message) -> PolicyVersion | None:
        """The version that an answer brings; None when it brings none."""

    def take(self, at: PolicyVersion, found: Any) -> PolicySnapshot:
        """Swap in what a look has found or an answer brings, which is of version `at`.

        Raises:
            RefusedTensors, RefusedArtifact: it is not what it says; the old policy goes on.
        """


class WeightsSource:
    """A trainer's weights, for a runtime of the uncompressed policy.

    Args:
        runtime: that they are for.
        buffer: where they may be found without asking.
        swap: puts what the buffer has into the runtime; None takes the runtime's own.
    """

    compressed = False

    def __init__(
        self,
        runtime: PolicyRuntime,
        buffer: SharedWeightsClient | None = None,
        swap: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._runtime, self._buffer = runtime, buffer
        self._swap_found = swap or runtime.swap

    @property
    def silent(self) -> bool:
        """Whether there is a buffer."""
        return self._buffer is not None and self._buffer.open

    def follow(self, peer: Peer) -> None:
        """Read the buffer of this trainer."""
        if self._buffer is not None:
            self._buffer.follow(peer)

    def look(self, known: PolicyVersion) -> tuple[PolicyVersion, Any] | None:
        """Newer weights on the buffer."""
        return None if self._buffer is None else self._buffer.newer_than(known)

    def question(self, known: PolicyVersion, *, uncompressed: bool) -> Message:
        """Asks for newer weights, which are never compressed."""
        return WeightsRequest(known.generation, known.version)

    def version(self, message: Message) -> PolicyVersion | None:
        """The weights' version."""
        if isinstance(message, Weights):
            return PolicyVersion(message.generation, message.version)
        return None

    def take(self, at: PolicyVersion, found: Any) -> PolicySnapshot:
        """Swap the weights in."""
        if isinstance(found, Weights):
            self._runtime.swap(found.tensors)
        else:
            self._swap_found(found)
        return PolicySnapshot(self._runtime.executable, at)


class ArtifactSource:
    """A compressor's artifacts."""

    silent = False
    compressed = True

    def __init__(self, runtime: ArtifactPolicy) -> None:
        self._runtime = runtime

    def follow(self, peer: Peer) -> None:
        """Each compressor is asked in the same way."""

    def look(self, known: PolicyVersion) -> None:
        """Artifacts are asked for."""

    def question(self, known: PolicyVersion, *, uncompressed: bool) -> Message:
        """Asks for a newer artifact, of the chain or of the uncompressed policy."""
        return ArtifactRequest(known.generation, known.version, uncompressed)

    def version(self, message: Message) -> PolicyVersion | None:
        """The version of the weights that the artifact was made from."""
        if isinstance(message, ArtifactReply):
            return PolicyVersion(message.generation, message.version)
        return None

    def take(self, at: PolicyVersion, found: Any) -> PolicySnapshot:
        """Check the artifact and swap it in."""
        assert isinstance(found, ArtifactReply)  # only what has a version is taken
        artifact = artifact_of(found)
        self._runtime.swap(artifact)
        return PolicySnapshot(self._runtime.executable, at, artifact.chain)


def make_weights_source(
    config: Config, architecture: Architecture, runtime: PolicyRuntime, kind: str
) -> WeightsSource:
    """The trainer's weights for a runtime that `make_runtime` made of `kind`."""
    share = config.trainer.share_weights
    if share == "host":
        return WeightsSource(runtime, SharedWeightsClient(architecture, "host", HostMemory))
    if share == "auto" and kind != "onnx":
        # imported here: who runs ONNX never pays for torch
        from compress.runtimes.cuda_policy import CudaGraphPolicy

        if isinstance(runtime, CudaGraphPolicy):
            from aclearn.shared_weights.cuda_memory import CudaMemory, place_of

            open_memory = partial(CudaMemory.open, device=runtime.device)
            buffer = SharedWeightsClient(architecture, place_of(runtime.device), open_memory)
            return WeightsSource(runtime, buffer, swap=runtime.swap_on_device)
    return WeightsSource(runtime)
