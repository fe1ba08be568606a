"""Artifacts as messages, and back."""

from __future__ import annotations

import json
from functools import lru_cache

from aclearn.types import PolicyVersion
from aclearn.wire import ArtifactReply
from compress import Artifact, Fidelity, PolicyGraph, RefusedArtifact


# the graph comes with every version and does not change
@lru_cache(maxsize=16)
def _text_of(graph: PolicyGraph) -> str:
    return json.dumps(graph.to_dict())


@lru_cache(maxsize=16)
def _graph_of(text: str) -> PolicyGraph:
    return PolicyGraph.from_dict(json.loads(text))


def reply_of(artifact: Artifact) -> ArtifactReply:
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
    )


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
