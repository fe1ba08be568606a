"""Messages of the data path, one frozen dataclass per kind.

Field types are the schema: `aclearn.wire.schema` reads the annotations at import. `int` is signed
64-bit, `float` is finite, `str` is one printable line of at most 1 KiB, `Text` is any text of at
most 48 KiB. Arrays declare their dtypes and number of dimensions. `policy` is the name of
the policy that a message is about; both ends refuse a name that they do not know.

Letters in shapes: T agent steps of an unroll, B environments, K resets inside an unroll, S stacked
frames. Messages with arrays compare by identity; the arrays of a decoded message are read-only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from aclearn.types import DEFAULT_POLICY, Unroll
from aclearn.types.array_rules import (
    BoolMatrix,
    BoolVector,
    Count,
    Float32Matrix,
    Float32Vector,
    IntRule,
    Observations,
    PolicyName,
    StateArray,
    StepActions,
    StoredTensor,
    Tensor,
    Text,
)
from aclearn.types.observation_spec import row_count
from aclearn.wire.monitor_messages import AllowedKey, MonitorMessage

PROTOCOL_VERSION = 15
"""Raised with each change of the wire format; peers of another version are refused."""

REPLY_WITHIN_S = 3.0
"""An actor repeats a request that has no answer after this time."""

VersionOrNone = Annotated[int, IntRule(-1)]  # -1: no weights yet


@dataclass(frozen=True, slots=True)
class UnrollReply:
    """The trainer admitted the unroll of that number, or the reason why not.

    `last`: the next unrolls reach `run.max_env_steps`; none is filled while another is under way.
    """

    unroll: Count
    accepted: bool
    reason: str
    last: bool = False


@dataclass(frozen=True, slots=True)
class WeightsRequest:
    """Requests weights newer than this generation and version (-1: none yet)."""

    generation: VersionOrNone
    version: VersionOrNone
    policy: PolicyName = DEFAULT_POLICY


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """All tensors of one policy version, by name; the next request may follow after `pause_s`."""

    generation: Count
    version: Count
    tensors: dict[str, Tensor]
    policy: PolicyName = DEFAULT_POLICY
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NoNewerWeights:
    """The requester has the newest weights or artifact, and may ask again after `pause_s`."""

    policy: PolicyName = DEFAULT_POLICY
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """Requests that the trainer sets a version aside that is newer than this one (-1: none yet)."""

    generation: VersionOrNone
    version: VersionOrNone
    policy: PolicyName = DEFAULT_POLICY


@dataclass(frozen=True, slots=True, eq=False)
class WeightsToJudge:
    """All tensors of the version that the trainer has set aside, after `env_steps` agent steps."""

    generation: Count
    version: Count
    env_steps: Count
    tensors: dict[str, Tensor]
    policy: PolicyName = DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class Judgement:
    """An evaluator's mean return of a version that was set aside."""

    generation: Count
    version: Count
    return_mean: float
    policy: PolicyName = DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class JudgementReply:
    """The answer to a judgement; not `known`: it is of a trainer before, and has no effect."""

    known: bool
    policy: PolicyName = DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class ObservationsRequest:
    """Requests up to `count` recent observations from a trainer."""

    count: Count
    policy: PolicyName = DEFAULT_POLICY


@dataclass(frozen=True, slots=True, eq=False)
class RecentObservations:
    """Observations of recent unrolls, leaf → [N, ...], as `Visited`; empty before there are any.

    With a memory they are sequences; the fields are then those of `Visited`.
    """

    observations: dict[str, Observations]
    masks: BoolMatrix | None = None
    length: Count = 1
    valid: BoolVector | None = None
    state: tuple[StateArray, ...] = ()
    policy: PolicyName = DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class ArtifactRequest:
    """Requests an artifact newer than this generation and version (-1: none yet).

    At the same version an artifact of another chain counts as newer.

    Attributes:
        uncompressed: request the uncompressed policy: the requester plays both, or has refused the
            newest artifact.
    """

    generation: VersionOrNone
    version: VersionOrNone
    chain: str = "none"
    uncompressed: bool = False
    policy: PolicyName = DEFAULT_POLICY


@dataclass(frozen=True, slots=True, eq=False)
class ArtifactReply:
    """A compressed policy; the fields are those of `compress.Artifact`.

    Attributes:
        graph: `PolicyGraph.to_dict()` as JSON.
        probe_observations: leaf → [N, ...].
        latency_ms: batch size → milliseconds a call.
        pause_s: seconds after which the next request may follow.
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
    policy: PolicyName = DEFAULT_POLICY
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class ActRequest:
    """Requests actions for observations, leaf → [B, ...], and the policy's state [B, ...].

    `own_state` is that of a compressed policy whose state is its own; one that does not fit the
    acting policy begins again with zeros, which `()` stands for too.

    `epsilon` is that of ε-greedy exploration; without it actions are sampled.

    `within_s` is the deadline, in seconds after the arrival; later the actor asks again. It is a
    span, since the clocks of two machines differ.
    """

    request: Count
    observations: dict[str, Observations]
    within_s: float = REPLY_WITHIN_S
    state: tuple[StateArray, ...] = ()
    masks: BoolMatrix | None = None
    epsilon: Float32Vector | None = None
    policy: PolicyName = DEFAULT_POLICY
    own_state: tuple[StateArray, ...] = ()

    @property
    def size(self) -> int:
        """B; 0 without a leaf."""
        return row_count(self.observations)


@dataclass(frozen=True, slots=True)
class ActCancel:
    """Cancels the actor's request of that number."""

    request: Count


@dataclass(frozen=True, slots=True, eq=False)
class ActReply:
    """Sampled `actions` [B] or [B, n], their log-probabilities [B], and the policy's version.

    `next_state` and `next_own_state` are those of the next request. `behaviour_parameters` [B, P]
    are there if unrolls carry them.
    """

    request: Count
    generation: Count
    version: Count
    actions: StepActions
    log_prob: Float32Vector
    chain: str = "none"
    next_state: tuple[StateArray, ...] = ()
    behaviour_parameters: Float32Matrix | None = None
    policy: PolicyName = DEFAULT_POLICY
    next_own_state: tuple[StateArray, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """A message was refused; `reason` is one of `aclearn.wire.codec.REASONS`."""

    reason: str
    detail: Text


Message = (
    MonitorMessage
    | Unroll
    | UnrollReply
    | WeightsRequest
    | Weights
    | NoNewerWeights
    | JudgeRequest
    | WeightsToJudge
    | Judgement
    | JudgementReply
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
    """A decoded message with its header, and its sender's key; None where there are no keys."""

    run: str
    incarnation: str
    sequence: int
    message: Message
    key: AllowedKey | None = None
