"""Replies to requests for artifacts."""

from __future__ import annotations

from collections.abc import Sequence

from aclearn.types import PolicyId, PolicyVersion
from aclearn.wire import (
    ArtifactReply,
    ArtifactRequest,
    Envelope,
    NoNewerWeights,
    Server,
)
from services.compressor.core import Compressor
from services.policy.artifact_messages import reply_of


def serve_artifacts(server: Server, compressor: Compressor, timeout_s: float) -> int:
    """Answer pending requests, or wait for one; returns the number of artifacts sent."""
    with compressor.meter.waiting("requests"):
        received = server.receive(timeout_s)
    with compressor.meter.part("encode"):
        return _answer(server, compressor, received)


def _answer(
    server: Server, compressor: Compressor, received: Sequence[tuple[bytes, Envelope]]
) -> int:
    sent = 0
    replies: dict[str, ArtifactReply] = {}
    for routing_id, envelope in received:
        request = envelope.message
        assert isinstance(request, ArtifactRequest)  # the only accepted message
        known = PolicyId(PolicyVersion(request.generation, request.version), request.chain)
        newer = compressor.newer_than(known, uncompressed=request.uncompressed)
        if newer is None:
            server.send(routing_id, NoNewerWeights())
            continue
        reply = replies.get(newer.digest) or reply_of(newer)
        replies[newer.digest] = reply
        sent += server.send(routing_id, reply)
    return sent
