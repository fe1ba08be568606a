"""Sources of acting policies: a trainer's weights, or a compressor's artifacts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from aclearn.config import Config
from aclearn.policies import Architecture
from aclearn.rollout import Executable, PolicySnapshot
from aclearn.shared_weights import HostMemory
from aclearn.types import PolicyId, PolicyVersion
from aclearn.wire import ArtifactReply, ArtifactRequest, Message, Peer, Weights, WeightsRequest
from compress import ArtifactRuntime, PolicyRuntime
from services.policy.artifact_messages import artifact_of
from services.policy.shared_weights import SharedWeightsClient


class PolicySource(Protocol):
    """Finds, requests and loads policies."""

    @property
    def silent(self) -> bool:
        """Whether `look` finds new policies, so that none must be requested."""

    @property
    def compressed(self) -> bool:
        """Whether the uncompressed policy can be requested in place of a refused one."""

    def follow(self, peer: Peer) -> None:
        """Use `peer`'s policies from now on."""

    def look(self, known: PolicyVersion) -> tuple[PolicyVersion, Any] | None:
        """A policy newer than `known` and its version, if one is available without a request."""

    def question(self, known: PolicyId, *, uncompressed: bool) -> Message:
        """The request for a policy newer than `known`, or for the uncompressed one."""

    def id_of(self, message: Message) -> PolicyId | None:
        """The policy that an answer brings; None when it brings none."""

    def load(self, at: PolicyVersion, found: Any) -> PolicySnapshot:
        """Prepare a policy of version `at`, from `look` or an answer, to act.

        Raises:
            RefusedTensors, RefusedArtifact: it is invalid.
        """


class WeightsSource:
    """A trainer's weights, for a runtime of the uncompressed policy.

    Args:
        runtime: that gets them.
        buffer: shared weights, read without a request.
        load_found: prepares the buffer's weights to act; by default the runtime does.
    """

    compressed = False

    def __init__(
        self,
        runtime: PolicyRuntime,
        buffer: SharedWeightsClient | None = None,
        load_found: Callable[[Mapping[str, Any]], Executable] | None = None,
    ) -> None:
        self._runtime, self._buffer = runtime, buffer
        self._load_found = load_found or runtime.load

    @property
    def silent(self) -> bool:
        """Whether there is a buffer."""
        return self._buffer is not None and self._buffer.open

    def follow(self, peer: Peer) -> None:
        """Read this trainer's buffer."""
        if self._buffer is not None:
            self._buffer.follow(peer)

    def look(self, known: PolicyVersion) -> tuple[PolicyVersion, Any] | None:
        """Newer weights in the buffer."""
        return None if self._buffer is None else self._buffer.newer_than(known)

    def question(self, known: PolicyId, *, uncompressed: bool) -> Message:
        """The request for newer weights; they are never compressed."""
        return WeightsRequest(known.at.generation, known.at.version)

    def id_of(self, message: Message) -> PolicyId | None:
        """The weights' version."""
        if isinstance(message, Weights):
            return PolicyId(PolicyVersion(message.generation, message.version))
        return None

    def load(self, at: PolicyVersion, found: Any) -> PolicySnapshot:
        """The weights, ready to act."""
        if isinstance(found, Weights):
            return PolicySnapshot(self._runtime.load(found.tensors), at)
        return PolicySnapshot(self._load_found(found), at)


class ArtifactSource:
    """A compressor's artifacts.

    Args:
        runtime: that they are for.
        uncompressed: those of the uncompressed policy, not of the current rung.
    """

    silent = False

    def __init__(self, runtime: ArtifactRuntime, *, uncompressed: bool = False) -> None:
        self._runtime, self._uncompressed = runtime, uncompressed

    @property
    def compressed(self) -> bool:
        """Whether the artifacts are those of the current rung."""
        return not self._uncompressed

    def follow(self, peer: Peer) -> None:
        """No effect: all compressors are asked alike."""

    def look(self, known: PolicyVersion) -> None:
        """None: artifacts are always requested."""

    def question(self, known: PolicyId, *, uncompressed: bool) -> Message:
        """The request for a newer artifact, of the chain or of the uncompressed policy."""
        return ArtifactRequest(
            known.at.generation, known.at.version, known.chain, uncompressed or self._uncompressed
        )

    def id_of(self, message: Message) -> PolicyId | None:
        """The version of the weights that the artifact was made from, and its chain."""
        if isinstance(message, ArtifactReply):
            return PolicyId(PolicyVersion(message.generation, message.version), message.chain)
        return None

    def load(self, at: PolicyVersion, found: Any) -> PolicySnapshot:
        """The artifact, checked and ready to act."""
        assert isinstance(found, ArtifactReply)  # answers without a version are not loaded
        artifact = artifact_of(found)
        executable = self._runtime.load(artifact)
        return PolicySnapshot(executable, at, artifact.chain, artifact.min_action_prob)


def make_weights_source(
    config: Config, architecture: Architecture, runtime: PolicyRuntime, kind: str
) -> WeightsSource:
    """The trainer's weights for a runtime that `make_runtime` made of `kind`."""
    share = config.trainer.share_weights
    if share == "host":
        return WeightsSource(runtime, SharedWeightsClient(architecture, "host", HostMemory))
    if share == "auto" and kind != "onnx":
        # imported here: a process that runs ONNX only never loads torch
        from compress.runtimes.cuda_runtime import CudaGraphRuntime

        if isinstance(runtime, CudaGraphRuntime):
            from aclearn.shared_weights.cuda_memory import CudaMemory, place_of

            open_memory = partial(CudaMemory.open, device=runtime.device)
            buffer = SharedWeightsClient(architecture, place_of(runtime.device), open_memory)
            return WeightsSource(runtime, buffer, runtime.load_on_device)
    return WeightsSource(runtime)
