"""Replies to requests for artifacts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from aclearn.types import DEFAULT_POLICY, PolicyId, PolicyVersion
from aclearn.wire import ArtifactReply, ArtifactRequest, Envelope, NoNewerWeights, Server
from compress import Artifact, PolicyGraph
from services.compressor.core import Compressor
from services.role.asking_pace import AskingPace


class ArtifactServer:
    """Answers those who ask for artifacts, and says when they may ask again.

    Args:
        compressors: policy → its compressor; they share a meter.

    Attributes:
        sent: number of artifacts.
    """

    def __init__(
        self, server: Server, compressors: Mapping[str, Compressor], clock: Callable[[], float]
    ) -> None:
        self._server, self._compressors, self._clock = server, compressors, clock
        self._pace = AskingPace()
        self.sent = 0

    def serve(self, timeout_s: float) -> None:
        """Answer pending requests, or wait for one."""
        meter = next(iter(self._compressors.values())).meter
        with meter.waiting("requests"):
            received = self._server.receive(timeout_s)
        with meter.part("encode"):
            self._answer(received)

    def _answer(self, received: Sequence[tuple[bytes, Envelope]]) -> None:
        replies: dict[tuple[str, str], ArtifactReply] = {}
        for routing_id, envelope in received:
            pause_s = self._pace.pause_s(routing_id, self._clock())
            request = envelope.message
            assert isinstance(request, ArtifactRequest)  # the only accepted message
            at = PolicyVersion(request.generation, request.version)
            known = PolicyId(at, request.chain, request.policy)
            compressor = self._compressors[request.policy]
            newer = compressor.newer_than(known, uncompressed=request.uncompressed)
            if newer is None:
                self._server.send(routing_id, NoNewerWeights(request.policy, pause_s))
                continue
            key = newer.digest, request.policy
            reply = replies[key] = replies.get(key) or reply_of(newer, request.policy)
            self.sent += self._server.send(routing_id, replace(reply, pause_s=pause_s))


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
