"""How the processes of a run are wired: who serves what, and who asks whom.

The picture in docs/architecture.md is printed from this page and from `DIRECTIVES`, which say who
obeys them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aclearn import wire
from aclearn.config import Config
from aclearn.types import Unroll


@dataclass(frozen=True)
class Endpoint:
    """A server of a role: the messages that it accepts, and those that it sends."""

    role: str
    accepts: tuple[type[wire.Message], ...] = ()
    sends: tuple[type[wire.Message], ...] = ()


#: Where rank 0 awaits the others; served until all ranks are there.
GROUP: Final = "group"

ENDPOINTS: dict[str, Endpoint] = {
    "monitor": Endpoint(
        "monitor",
        (
            wire.NumberRequest,
            wire.Hello,
            wire.Heartbeat,
            wire.DirectiveAck,
            wire.DirectiveMessage,
            wire.StatusRequest,
            wire.Action,
        ),
        (
            wire.Number,
            wire.Peers,
            wire.HeartbeatReply,
            wire.MembershipReply,
            wire.DirectiveMessage,
            wire.Status,
            wire.ActionReply,
        ),
    ),
    "unrolls": Endpoint("trainer", (Unroll,), (wire.UnrollReply,)),
    "weights": Endpoint(
        "trainer",
        (wire.WeightsRequest, wire.ObservationsRequest, wire.JudgeRequest, wire.Judgement),
        (
            wire.Weights,
            wire.NoNewerWeights,
            wire.RecentObservations,
            wire.WeightsToJudge,
            wire.JudgementReply,
        ),
    ),
    "shared_weights": Endpoint("trainer"),  # file descriptors of memory, over a unix socket
    GROUP: Endpoint("trainer"),  # the store of torch.distributed, at which ranks find each other
    "artifacts": Endpoint(
        "compressor", (wire.ArtifactRequest,), (wire.ArtifactReply, wire.NoNewerWeights)
    ),
    "predictions": Endpoint("predictor", (wire.ActRequest, wire.ActCancel), (wire.ActReply,)),
}
"""Every server of a run by its name, under which its port is in `network.ports`."""


@dataclass(frozen=True)
class Question:
    """A role that asks an endpoint, and in which configurations."""

    role: str
    endpoint: str
    when: str = ""
    asked: Callable[[Config], bool] = lambda _: True


def _predicted(config: Config) -> bool:
    return config.actors.inference == "predictor"


def _compressed(config: Config) -> bool:
    return bool(config.compressor.rungs)


QUESTIONS: tuple[Question, ...] = (
    Question("actor", "unrolls"),
    Question("actor", "predictions", "inference: predictor", _predicted),
    Question(
        "actor", "artifacts", "local, compressed", lambda c: not _predicted(c) and _compressed(c)
    ),
    Question(
        "actor", "weights", "local, uncompressed", lambda c: not (_predicted(c) or _compressed(c))
    ),
    Question("predictor", "artifacts", "compressed", _compressed),
    Question("predictor", "weights", "uncompressed", lambda c: not _compressed(c)),
    Question("compressor", "weights"),
    Question("evaluator", "weights"),
    Question("evaluator", "artifacts", "compressed", _compressed),
)
"""Who asks whom; every role and the supervisor ask the monitor too."""


def endpoints_of(role: str) -> tuple[str, ...]:
    """Names of the servers of a role."""
    return tuple(name for name, endpoint in ENDPOINTS.items() if endpoint.role == role)


def asked_by(role: str, config: Config) -> tuple[str, ...]:
    """The roles that a role asks in a run of this configuration, beside the monitor."""
    asked = [q.endpoint for q in QUESTIONS if q.role == role and q.asked(config)]
    return tuple(dict.fromkeys(ENDPOINTS[name].role for name in asked))
