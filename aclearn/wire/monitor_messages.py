"""Messages from and to the monitor; field types are the schema, as in `messages`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from aclearn.types import DEFAULT_POLICY, EpisodeCohort, unpack_seen
from aclearn.types.array_rules import (
    ByteMatrix,
    Count,
    Int64Vector,
    PolicyName,
    Scalar,
    Text,
)


@dataclass(frozen=True, slots=True)
class NumberRequest:
    """Requests a number for the name of a process."""

    role: str


@dataclass(frozen=True, slots=True)
class Number:
    """The number of a process; the monitor gives it to no other living process."""

    number: Count


@dataclass(frozen=True, slots=True)
class Hello:
    """A role's name and place; `endpoints` maps a service to its address.

    Role and number form the name, e.g. actor-3. `note` says how the previous process ended, "" if
    unknown. `generation` is a trainer's. `digests` has one of each setting that must be equal in a
    run, by its name; `forced` says that the user wants to take part although some differ.
    `server_key` is the public key that its servers prove, "" without keys.
    """

    role: str
    number: Count
    host: str
    pid: Count
    endpoints: dict[str, str]
    note: str = ""
    generation: Count = 0
    digests: dict[str, str] = field(default_factory=dict)
    forced: bool = False
    server_key: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """One living role that serves others (part of `Peers`); `generation` is a trainer's.

    `server_key` is the public key that its servers prove, "" where there are no keys.
    """

    role: str
    name: str
    incarnation: str
    endpoints: dict[str, str]
    generation: Count = 0
    server_key: str = ""


@dataclass(frozen=True, slots=True)
class Peers:
    """All living roles that serve others; `revision` grows with each change of the list.

    `revoked` has the incarnations that left because their key was revoked: nobody may stay
    connected to them.
    """

    revision: Count
    peers: list[Peer]
    revoked: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AllowedKey:
    """A public key that may connect, or one that may no more (part of `AllowedKeys`).

    `name` is the key's, `roles` those that it is for. `processes` is the largest number of its
    processes, and `unrolls_per_s` that of their unrolls a second at one trainer; 0 for no bound.
    """

    public: str
    name: str
    roles: list[str]
    revoked: bool = False
    processes: Count = 0
    unrolls_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AllowedKeys:
    """All keys that may connect to a server of the run."""

    keys: list[AllowedKey]


@dataclass(frozen=True, slots=True)
class PolicyNumbers:
    """A heartbeat's numbers of one of several policies (part of `Heartbeat`)."""

    counters: dict[str, Count] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    dropped: dict[str, Count] = field(default_factory=dict)
    episode_returns: list[float] = field(default_factory=list)
    episode_policies: list[str] = field(default_factory=list)
    cohorts: list[EpisodeCohort] = field(default_factory=list)
    settled_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A role's metrics, sent at intervals.

    `counters`, `dropped` (agent steps by reason), `waits` (seconds by label) and `parts` (seconds
    of all threads by part of the work, including waits and the total) are cumulative over the
    incarnation. `episode_returns` are those of the episodes finished since the previous heartbeat.
    `episode_policies` names the policy that played each: "original" (the uncompressed one),
    "compressed", or "mixed". `cohorts` are those that became whole since then, in the order of
    their begins; of an actor, none will follow that began before `settled_s`. `clock_s` is the time
    of this heartbeat on the same clock, 0 without episodes. `note` is a present problem of the
    role, "" without one: of a trainer, why the last checkpoint failed.

    `policy` is the name of the policy that all numbers are of. With several policies `policies` has
    the numbers of each; the counters and `dropped` beside it are sums, and there are no episodes.

    A trainer says of each actor how many of its steps are in the account. By the name of a policy,
    `actors` has their incarnations and `actor_steps` the steps, as of `pack_seen`.
    """

    counters: dict[str, Count] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    dropped: dict[str, Count] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    episode_returns: list[float] = field(default_factory=list)
    episode_policies: list[str] = field(default_factory=list)
    cohorts: list[EpisodeCohort] = field(default_factory=list)
    settled_s: float = 0.0
    clock_s: float = 0.0
    note: Text = ""
    final: bool = False
    policy: PolicyName = DEFAULT_POLICY
    policies: dict[str, PolicyNumbers] = field(default_factory=dict)
    actors: dict[str, ByteMatrix] = field(default_factory=dict)
    actor_steps: dict[str, Int64Vector] = field(default_factory=dict)

    def seen(self) -> dict[str, int]:
        """Incarnation of an actor → its agent steps in the trainer's account, of all policies.

        Raises:
            ValueError: the arrays do not fit each other.
        """
        if self.actors.keys() != self.actor_steps.keys():
            raise ValueError("expected actors and actor_steps of the same policies")
        seen = Counter[str]()
        for policy, names in self.actors.items():
            seen.update(unpack_seen(names, self.actor_steps[policy]))
        return dict(seen)

    def of_policy(self, policy: str) -> Heartbeat:
        """The numbers of one of several policies as a heartbeat of their own."""
        numbers = self.policies[policy]
        own = {each.name: getattr(numbers, each.name) for each in fields(numbers)}
        for name in ("actors", "actor_steps"):
            own[name] = {at: a for at, a in getattr(self, name).items() if at == policy}
        return Heartbeat(clock_s=self.clock_s, final=self.final, policy=policy, **own)


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """Answers a heartbeat with the newest revision of `Peers`.

    `every_s` is the time to the sender's next heartbeat, which is longer in a large run.
    """

    revision: Count
    every_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MembershipReply:
    """Answers a process that is no member: "hello", "wait", "full", "leave" or "stop".

    "hello": say hello. "wait": the process that has this name still lives; say hello again later.
    "full": as many processes as may be are there; ask again later. "leave": another process has the
    name, or the monitor refuses this one; save and end. "stop": the run is over; end.
    """

    action: str
    reason: Text


@dataclass(frozen=True, slots=True)
class DirectiveMessage:
    """A directive by its kind's name and its values (`aclearn.control.directives`).

    It is repeated until it is acknowledged, or replaced by a newer one of its kind. A repeated
    directive has no further effect, and is acknowledged again.
    """

    id: Count
    kind: str
    values: dict[str, Scalar]


@dataclass(frozen=True, slots=True)
class DirectiveAck:
    """The receiver obeys the directive with that id; or the reason why it refuses."""

    id: Count
    refusal: Text = ""


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Requests the status of the run from the monitor.

    `supervises`: the first such process is the supervisor. Others only look, and are told more of
    the processes.
    """

    supervises: bool = True


@dataclass(frozen=True, slots=True)
class Status:
    """The status of the run, as a JSON object."""

    json: Text


@dataclass(frozen=True, slots=True)
class Action:
    """What a user wants of the run: a directive by its kind's name and its values.

    `key` is that of the run's `monitor.json`, which only the run's owner can read.
    """

    key: str
    kind: str
    values: dict[str, Scalar]


@dataclass(frozen=True, slots=True)
class ActionReply:
    """The directive is in force; or the reason why it is refused."""

    refusal: Text = ""


MonitorMessage = (
    NumberRequest
    | Number
    | Hello
    | Peers
    | AllowedKeys
    | Heartbeat
    | HeartbeatReply
    | MembershipReply
    | DirectiveMessage
    | DirectiveAck
    | StatusRequest
    | Status
    | Action
    | ActionReply
)
