"""The messages from and to the monitor; field types are the schema, as in `messages`."""

from __future__ import annotations

from dataclasses import dataclass, field

from aclearn.types.array_rules import Count, Text


@dataclass(frozen=True, slots=True)
class NumberRequest:
    """A process that was given no name asks the monitor for the number in its name."""

    role: str


@dataclass(frozen=True, slots=True)
class Number:
    """The number of a process; the monitor gives it to no other process that sends heartbeats."""

    number: Count


@dataclass(frozen=True, slots=True)
class Hello:
    """A role tells the monitor its name and place; `endpoints` maps a service to its address.

    Role and number are the name: actor and 3 are actor-3. `note` says how the process ended that
    this one replaces, "" where that is unknown.
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
    heartbeat before; `episode_policies` says of each which policy played all of it: "original" (the
    uncompressed one), "compressed", or "mixed" where several did. `note` is what goes wrong with
    the role at present, "" where nothing does: of a trainer, why the last checkpoint could not be
    written.
    """

    counters: dict[str, Count] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    dropped: dict[str, Count] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    episode_returns: list[float] = field(default_factory=list)
    episode_policies: list[str] = field(default_factory=list)
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
class SetChain:
    """The monitor sets the rung of `compressor.ladder` that compressors compress with from now on.

    Rungs are numbered from 0, the most compressed one.
    """

    rung: Count
    id: Count = 0


@dataclass(frozen=True, slots=True)
class SetMix:
    """The monitor sets how often actors play the policy of the current rung from now on.

    `compressed_share` is the probability, 0 to 1, that it plays an unroll; the uncompressed policy
    plays the others.
    """

    compressed_share: float
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


MonitorMessage = (
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
    | SetChain
    | SetMix
    | StopRun
    | StatusRequest
    | Status
)
