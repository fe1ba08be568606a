"""How the processes of a run are wired: who serves what, and who asks whom.

The picture in docs/architecture.md is printed from this page and from `DIRECTIVES`, which say who
obeys them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aclearn import wire
from aclearn.config import Config
from aclearn.types import Unroll

#: The parent of a run on one machine; no role of the table, but its key has this name.
SUPERVISOR: Final = "supervisor"


@dataclass(frozen=True)
class Endpoint:
    """A server of a role.

    Attributes:
        accepts: the messages that it accepts, each with the roles that may send it: those of the
            sender's key, where there are keys.
        sends: the messages that it sends.
    """

    role: str
    accepts: Mapping[type[wire.Message], tuple[str, ...]] = field(default_factory=dict)
    sends: tuple[type[wire.Message], ...] = ()


#: Where rank 0 awaits the others; served until all ranks are there.
GROUP: Final = "group"

_MEMBERS = ("trainer", "predictor", "compressor", "actor", "evaluator")
# a trainer that fails for good ends the run, in a container without a supervisor
_END_THE_RUN = (SUPERVISOR, "trainer")

ENDPOINTS: dict[str, Endpoint] = {
    "monitor": Endpoint(
        "monitor",
        {
            wire.NumberRequest: _MEMBERS,
            wire.Hello: _MEMBERS,
            wire.Heartbeat: _MEMBERS,
            wire.DirectiveAck: (*_MEMBERS, SUPERVISOR),
            wire.DirectiveMessage: _END_THE_RUN,
            wire.StatusRequest: _END_THE_RUN,
            wire.Action: (SUPERVISOR,),
        },
        (
            wire.Number,
            wire.Peers,
            wire.AllowedKeys,
            wire.HeartbeatReply,
            wire.MembershipReply,
            wire.DirectiveMessage,
            wire.Status,
            wire.ActionReply,
        ),
    ),
    "unrolls": Endpoint("trainer", {Unroll: ("actor",)}, (wire.UnrollReply,)),
    "weights": Endpoint(
        "trainer",
        {
            wire.WeightsRequest: ("actor", "predictor", "compressor", "evaluator"),
            wire.ObservationsRequest: ("compressor",),
            wire.JudgeRequest: ("evaluator",),
            wire.Judgement: ("evaluator",),
        },
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
        "compressor",
        {wire.ArtifactRequest: ("actor", "predictor", "evaluator")},
        (wire.ArtifactReply, wire.NoNewerWeights),
    ),
    "predictions": Endpoint(
        "predictor", {wire.ActRequest: ("actor",), wire.ActCancel: ("actor",)}, (wire.ActReply,)
    ),
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
