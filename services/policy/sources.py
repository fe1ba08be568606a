"""Where acting policies come from: a trainer's weights, or a compressor's artifacts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from aclearn.rollout import PolicySnapshot
from aclearn.types import PolicyId, PolicyVersion
from aclearn.wire import ArtifactReply, ArtifactRequest, Message, Weights, WeightsRequest
from compress import (
    Artifact,
    ArtifactRuntime,
    Fidelity,
    PolicyGraph,
    PolicyRuntime,
    RefusedArtifact,
)


class PolicySource(NamedTuple):
    """How a peer is asked for policies, and how its replies begin to act.

    Attributes:
        request: asks for a policy newer than the known one.
        load: prepares a reply's policy to act; raises `RefusedTensors` or `RefusedArtifact`.
        uncompressed: asks in place of a refused policy for the uncompressed one; None: there is
            no other one.
    """

    request: Callable[[PolicyId], Message]
    load: Callable[[Any], PolicySnapshot]
    uncompressed: Callable[[PolicyId], Message] | None = None


def weights_source(runtime: PolicyRuntime) -> PolicySource:
    """A trainer's weights, for a runtime of the uncompressed policy."""

    def request(known: PolicyId) -> Message:
        return WeightsRequest(known.at.generation, known.at.version, known.policy)

    def load(reply: Weights) -> PolicySnapshot:
        at = PolicyVersion(reply.generation, reply.version)
        return PolicySnapshot(runtime.load(reply.tensors), at)

    return PolicySource(request, load)


def artifact_source(
    runtime: ArtifactRuntime, *, state: Sequence[int] = (), uncompressed: bool = False
) -> PolicySource:
    """A compressor's artifacts of its current rung, or only of the uncompressed policy.

    Args:
        state: numbers of each part of the uncompressed policy's state, as `Architecture.state`.
    """

    def request(known: PolicyId, *, original: bool = uncompressed) -> Message:
        at = known.at
        return ArtifactRequest(at.generation, at.version, known.chain, original, known.policy)

    def load(reply: ArtifactReply) -> PolicySnapshot:
        artifact = artifact_of(reply)
        executable = runtime.load(artifact)
        graph = artifact.graph
        own = None if graph.keeps_state(state) else tuple((size,) for size in graph.state)
        return PolicySnapshot(
            executable, artifact.at, artifact.chain, artifact.min_action_prob, own
        )

    instead = None if uncompressed else lambda known: request(known, original=True)
    return PolicySource(request, load, instead)


# the graph comes with every version and does not change
@lru_cache(maxsize=16)
def _graph_of(text: str) -> PolicyGraph:
    return PolicyGraph.from_dict(json.loads(text))


def artifact_of(reply: ArtifactReply) -> Artifact:
    """The artifact in a message; its contents are not checked yet.

    Raises:
        RefusedArtifact: the message describes no artifact.
    """
    try:
        fidelity = dict(reply.fidelity)
        whole = {name: int(fidelity.pop(name)) for name in ("observations", "version")}
        return Artifact(
            at=PolicyVersion(reply.generation, reply.version),
            chain=reply.chain,
            original=reply.original,
            graph=_graph_of(reply.graph),
            tensors=reply.tensors,
            probe_observations=reply.probe_observations,
            probe_parameters=reply.probe_parameters,
            fidelity=Fidelity(**fidelity, **whole),  # type: ignore[arg-type]
            latency_ms={int(size): ms for size, ms in reply.latency_ms.items()},
            min_action_prob=reply.min_action_prob,
            digest=reply.digest,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RefusedArtifact(f"artifact {reply.chain}: not an artifact: {error!r}") from error
