"""Replies to requests for artifacts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache

from aclearn.types import DEFAULT_POLICY, PolicyId, PolicyVersion
from aclearn.wire import ArtifactReply, ArtifactRequest, Envelope, NoNewerWeights, Server
from compress import Artifact, PolicyGraph
from services.compressor.core import Compressor


def serve_artifacts(server: Server, compressors: Mapping[str, Compressor], timeout_s: float) -> int:
    """Answer pending requests, or wait for one; returns the number of artifacts sent.

    Args:
        compressors: policy → its compressor; they share a meter.
    """
    meter = next(iter(compressors.values())).meter
    with meter.waiting("requests"):
        received = server.receive(timeout_s)
    with meter.part("encode"):
        return _answer(server, compressors, received)


def _answer(
    server: Server,
    compressors: Mapping[str, Compressor],
    received: Sequence[tuple[bytes, Envelope]],
) -> int:
    sent = 0
    replies: dict[tuple[str, str], ArtifactReply] = {}
    for routing_id, envelope in received:
        request = envelope.message
        assert isinstance(request, ArtifactRequest)  # the only accepted message
        at = PolicyVersion(request.generation, request.version)
        known = PolicyId(at, request.chain, request.policy)
        newer = compressors[request.policy].newer_than(known, uncompressed=request.uncompressed)
        if newer is None:
            server.send(routing_id, NoNewerWeights(request.policy))
            continue
        key = newer.digest, request.policy
        reply = replies[key] = replies.get(key) or reply_of(newer, request.policy)
        sent += server.send(routing_id, reply)
    return sent


# the graph goes with every version and does not change
@lru_cache(maxsize=16)
def _text_of(graph: PolicyGraph) -> str:
    return json.dumps(graph.to_dict())


def reply_of(artifact: Artifact, policy: str = DEFAULT_POLICY) -> ArtifactReply:
    """The message that carries an artifact."""
    return ArtifactReply(
        generation=artifact.at.generation,
        version=artifact.at.version,
        chain=artifact.chain,
        original=artifact.original,
        graph=_text_of(artifact.graph),
        tensors=dict(artifact.tensors),
        probe_observations=dict(artifact.probe_observations),
        probe_parameters=artifact.probe_parameters,
        fidelity={name: float(value) for name, value in vars(artifact.fidelity).items()},
        latency_ms={str(size): ms for size, ms in artifact.latency_ms.items()},
        min_action_prob=artifact.min_action_prob,
        digest=artifact.digest,
        policy=policy,
    )
