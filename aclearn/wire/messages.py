"""The messages that roles send each other: one frozen dataclass per kind.

Field types are the schema: `aclearn.wire.schema` reads the annotations once, at import. `int` is
signed 64-bit, `float` is finite, `str` is one printable line of at most 1 KiB, `Text` is any text
of at most 48 KiB. Arrays declare the dtypes and the number of dimensions they may have.

Letters in shapes: T agent steps of an unroll, B environments, K resets inside an unroll, S stacked
frames. Messages that carry arrays compare by identity; the arrays of a decoded message are
read-only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from aclearn.types import Unroll
from aclearn.types.array_rules import (
    Count,
    Float32Matrix,
    Float32Vector,
    Int32Vector,
    IntRule,
    Observations,
    StateArray,
    StoredTensor,
    Tensor,
)

PROTOCOL_VERSION = 4
"""Raised with every change of the wire format; peers of another version are refused."""

REPLY_WITHIN_S = 3.0
"""An actor asks again when a request has no answer for so many seconds."""


class TextRule(NamedTuple):
    """The most UTF-8 bytes that a text field accepts; line breaks are allowed."""

    max_bytes: int


VersionOrNone = Annotated[int, IntRule(-1)]  # -1: the sender has no weights yet
Text = Annotated[str, TextRule(48 * 1024)]


# ---- roles and the monitor ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NumberRequest:
    """A process that was given no name asks the monitor for the number in its name."""

    role: str


@dataclass(frozen=True, slots=True)
class Number:
    """The number of a process; the monitor gives it to no other process that it hears."""

    number: Count


@dataclass(frozen=True, slots=True)
class Hello:
    """A role tells the monitor who and where it is; `endpoints` maps a service to its address.

    Role and number are the name: actor and 3 are actor-3. `note` is what became of the process that
    this one was started after, where somebody knows.
    """

    role: str
    number: Count
    host: str
    pid: Count
    endpoints: dict[str, str]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """One living role that serves others, as the monitor knows it (part of `Peers`)."""

    role: str
    name: str
    incarnation: str
    endpoints: dict[str, str]


@dataclass(frozen=True, slots=True)
class Peers:
    """Every living role that serves others; `revision` grows with each change of the list."""

    revision: Count
    peers: list[Peer]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life with metrics.

    `counters`, `dropped` (agent steps by reason), `waits` (seconds by label) and `parts` (seconds
    of all threads by part of the work, waits and the total among them) are cumulative since the
    start of the incarnation; `episode_returns` are those of the episodes finished since the
    heartbeat before. `note` is what goes wrong with the role at present, "" where nothing does: of
    a trainer, why the last checkpoint could not be written.
    """

    counters: dict[str, Count] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    dropped: dict[str, Count] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    episode_returns: list[float] = field(default_factory=list)
    note: Text = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The monitor's answer to a heartbeat: the newest revision of `Peers`."""

    revision: Count


@dataclass(frozen=True, slots=True)
class MembershipReply:
    """The monitor's answer to a process that is no member: "hello", "wait", "leave" or "stop".

    A process that is to leave is no part of the run: another one has its name, or the monitor
    refuses it. It saves what it has, as at a stop. One that is to wait says hello again: the
    process that has its name still lives.
    """

    action: str
    reason: Text


# Directives: the monitor sends one again until it is acknowledged, or a newer one of its kind is
# sent. A role that gets one twice acknowledges it twice and does the same thing.


@dataclass(frozen=True, slots=True)
class DirectiveAck:
    """The role has taken the directive with that id."""

    id: Count


@dataclass(frozen=True, slots=True)
class StopRole:
    """The run is over: the role ends."""

    reason: Text
    id: Count = 0


@dataclass(frozen=True, slots=True)
class SaveBest:
    """The monitor tells a trainer of a mean of 100 returns that is above its best checkpoint's."""

    return_mean: float
    id: Count = 0


@dataclass(frozen=True, slots=True)
class SetWorkers:
    """The monitor sets how many workers a predictor or trainer has from now on."""

    count: Count
    id: Count = 0


@dataclass(frozen=True, slots=True)
class SetActors:
    """The monitor sets how many actors the supervisor runs from now on."""

    count: Count
    id: Count = 0


@dataclass(frozen=True, slots=True)
class StopRun:
    """The supervisor or the command line asks the monitor to end the run."""

    reason: Text


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """The supervisor or the command line asks the monitor how the run is."""


@dataclass(frozen=True, slots=True)
class Status:
    """How the run is, as a JSON object in text."""

    json: Text


# ---- training queue -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnrollReply:
    """The trainer took the unroll with that number, or says why not."""

    unroll: Count
    accepted: bool
    reason: str


@dataclass(frozen=True, slots=True)
class WeightsRequest:
    """Asks for weights newer than this generation and version (-1: none yet)."""

    generation: VersionOrNone
    version: VersionOrNone


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """All tensors of one policy version, by name."""

    generation: Count
    version: Count
    tensors: dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class NoNewerWeights:
    """The newest weights or artifact are the ones the asker has."""


# ---- compressor ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObservationsRequest:
    """Asks a trainer for up to `count` observations that actors visited lately."""

    count: Count


@dataclass(frozen=True, slots=True, eq=False)
class RecentObservations:
    """Observations of unrolls that arrived lately, leaf → [N, ...]; empty before there are any."""

    observations: dict[str, Observations]


@dataclass(frozen=True, slots=True)
class ArtifactRequest:
    """Asks for an artifact newer than this generation and version (-1: none yet).

    Attributes:
        uncompressed: of the uncompressed policy, since the asker has refused the newest artifact.
    """

    generation: VersionOrNone
    version: VersionOrNone
    uncompressed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ArtifactReply:
    """A compressed policy; the fields are those of `compress.Artifact`.

    Attributes:
        graph: `PolicyGraph.to_dict()` as JSON.
        fidelity: field → value.
        probe_observations: leaf → [N, ...].
        latency_ms: batch size → milliseconds a call.
    """

    generation: Count
    version: Count
    chain: str
    original: str
    graph: Text
    tensors: dict[str, StoredTensor]
    probe_observations: dict[str, Observations]
    probe_parameters: Float32Matrix
    fidelity: dict[str, float]
    latency_ms: dict[str, float]
    min_action_prob: float
    digest: str


# ---- prediction queue ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ActRequest:
    """An actor asks for actions for observations, leaf → [B, ...], and the policy's state [B, ...].

    `within_s` is its deadline: so many seconds after the request has come, it asks again. A span,
    since clocks of two machines have nothing in common.
    """

    request: Count
    observations: dict[str, Observations]
    within_s: float = REPLY_WITHIN_S
    state: tuple[StateArray, ...] = ()

    @property
    def size(self) -> int:
        """B; 0 without a leaf."""
        return len(next(iter(self.observations.values()), ()))


@dataclass(frozen=True, slots=True)
class ActCancel:
    """An actor wants no reply to its request with that number any more: it leaves."""

    request: Count


@dataclass(frozen=True, slots=True, eq=False)
class ActReply:
    """Sampled `actions` [B], the log-probabilities [B] they were sampled with, and by what.

    `next_state` is the policy's state after the step, to be asked with at the next one.
    """

    request: Count
    generation: Count
    version: Count
    actions: Int32Vector
    log_prob: Float32Vector
    chain: str = "none"
    next_state: tuple[StateArray, ...] = ()


# ---- any service --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """A message was refused; `reason` is one of `aclearn.wire.REASONS`."""

    reason: str
    detail: Text


Message = (
    NumberRequest
    | Number
    | Hello
    | Peers
    | Heartbeat
    | HeartbeatReply
    | MembershipReply
    | DirectiveAck
    | StopRole
    | SaveBest
    | SetWorkers
    | SetActors
    | StopRun
    | StatusRequest
    | Status
    | Unroll
    | UnrollReply
    | WeightsRequest
    | Weights
    | NoNewerWeights
    | ObservationsRequest
    | RecentObservations
    | ArtifactRequest
    | ArtifactReply
    | ActRequest
    | ActCancel
    | ActReply
    | ErrorReply
)


@dataclass(frozen=True, slots=True, eq=False)
class Envelope:
    """A decoded message with what its header says about it."""

    run: str
    incarnation: str
    sequence: int
    message: Message
