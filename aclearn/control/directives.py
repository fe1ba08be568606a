"""Directives of the monitor: what each kind says, within which bounds, to whom.

A new kind is a class here, also in `DIRECTIVES`, and a receiver that obeys it: a role names what it
obeys in `context.join(..., on={SetMix: ...})`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from aclearn.algorithms.keys import MAX_COST
from aclearn.config import MAX_PROCESSES, Config
from aclearn.config.learning import MOST_LEARNING_RATE
from aclearn.types.array_rules import Count, FloatRule, IntRule, Text
from aclearn.wire import DirectiveAck, DirectiveMessage
from aclearn.wire.schema import record_rule

_LOGGER = logging.getLogger(__name__)

#: Most workers of a role, as in the configuration.
MOST_WORKERS = 64
#: Learning rates are above 0: with 0 nothing would be learned, and every run has an end.
_LEAST_LEARNING_RATE = 1e-12
#: Most characters of a reason to refuse.
_MOST_REASON = 300


@dataclass(frozen=True)
class Payload:
    """The values of a directive; annotations are their schema, with bounds, on both sides.

    Attributes:
        roles: the receivers; none: every role but the supervisor.
        kept: whether a restarted monitor continues with it.
    """

    roles: ClassVar[tuple[str, ...]] = ()
    kept: ClassVar[bool] = False

    def check(self, config: Config) -> None:
        """Raise `ValueError` if no plug-in may give it in a run of this configuration."""

    def values(self) -> dict[str, Any]:
        """Name → value; raises `ValueError` for values beyond the bounds."""
        kind: Any = type(self)
        try:
            return record_rule(kind)(self)  # type: ignore[no-any-return]
        except ValueError as error:
            raise ValueError(f"{self!r:.200}: {error}") from None

    def message(self, id: int = 0) -> DirectiveMessage:
        """The message of the directive of that number."""
        return DirectiveMessage(id, type(self).__name__, self.values())

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The payload with these values; raises `ValueError` if they are not within the schema."""
        kind: Any = cls
        return record_rule(kind)(values)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class StopRole(Payload):
    """The run is over: end."""

    reason: Text

    def check(self, config: Config) -> None:
        """Plug-ins never give it."""
        raise ValueError("StopRole: only the monitor stops roles; end the run with StopRun")


@dataclass(frozen=True)
class SaveBest(Payload):
    """A mean of 100 returns above the best checkpoint's: save one."""

    return_mean: float
    roles = ("trainer",)


@dataclass(frozen=True)
class SaveCheckpoint(Payload):
    """Write a checkpoint now."""

    roles = ("trainer",)


@dataclass(frozen=True)
class SetLearningRate(Payload):
    """`optimiser.learning_rate` from now on; its schedule goes on.

    Weights whose learning rate the algorithm has set keep that.
    """

    rate: Annotated[float, FloatRule(_LEAST_LEARNING_RATE, MOST_LEARNING_RATE)]
    roles = ("trainer",)


@dataclass(frozen=True)
class SetEntropyCost(Payload):
    """`loss.entropy_cost` from now on, of each policy that has one."""

    cost: Annotated[float, FloatRule(0.0, MAX_COST)]
    roles = ("trainer",)

    def check(self, config: Config) -> None:
        """Some loss has this key."""
        losses = [config.of_policy(name).loss for name in config.learning_policies()]
        # of a user's own algorithm the trainer knows the keys
        if not any(hasattr(loss, "entropy_cost") or ":" in loss.kind for loss in losses):
            kinds = ", ".join(dict.fromkeys(loss.kind for loss in losses))
            raise ValueError(f"SetEntropyCost: loss.kind {kinds} has no entropy_cost")


@dataclass(frozen=True)
class SetWorkers(Payload):
    """Number of workers of a predictor or trainer."""

    count: Annotated[int, IntRule(1, MOST_WORKERS)]
    roles = ("trainer", "predictor")


@dataclass(frozen=True)
class SetActors(Payload):
    """Number of actors of the supervisor."""

    count: Annotated[int, IntRule(1, MAX_PROCESSES)]
    roles = ("supervisor",)

    def check(self, config: Config) -> None:
        """The run has actors, and the configuration could have this number of them."""
        if config.resident.envs is not None:
            raise ValueError(
                "SetActors: this run has no actors, since the trainer plays in environments of its "
                "own (resident.envs)"
            )
        if self.count < config.ranks:
            raise ValueError(
                f"SetActors: each of {config.ranks} trainers waits for unrolls of its own actors; "
                f"give {config.ranks} or more"
            )
        if config.actors.wait_for_weights:
            raise ValueError(
                "SetActors: with actors.wait_for_weights each actor plays its share of a batch; "
                "resume the run with another actors.processes"
            )
        for sentence in config.actors.model_copy(update={"processes": self.count}).too_many(config):
            raise ValueError(f"SetActors: {sentence}")


@dataclass(frozen=True)
class SetChain(Payload):
    """Rung of `compressor.ladder` with which compressors compress; 0 is the most compressed one."""

    rung: Count
    roles = ("compressor",)
    kept = True

    def check(self, config: Config) -> None:
        """The rung is one of the ladder."""
        if not config.compressor.rungs:
            raise ValueError(
                "SetChain: this run compresses nothing; it has neither compressor.chain nor "
                "compressor.ladder"
            )
        if self.rung >= (rungs := len(config.compressor.rungs)):
            raise ValueError(f"expected a rung below {rungs}, got {self!r}")


@dataclass(frozen=True)
class SetMix(Payload):
    """Probability with which actors play an unroll with the policy of the current rung.

    The uncompressed policy plays the others.
    """

    compressed_share: Annotated[float, FloatRule(0.0, 1.0)]
    roles = ("actor",)
    kept = True

    def check(self, config: Config) -> None:
        """Actors play two policies."""
        if not config.mixes_policies:
            raise ValueError(
                "SetMix: only actors that choose their actions (actors.inference: local) from "
                "compressed policies (compressor.chain or compressor.ladder) play two policies"
            )


@dataclass(frozen=True)
class StopRun(Payload):
    """End the run; of other processes only the supervisor sends it."""

    reason: Text
    roles = ("monitor",)


@dataclass(frozen=True)
class Note(Payload):
    """A line of text for the user."""

    text: Text
    roles = ("monitor",)


DIRECTIVES: tuple[type[Payload], ...] = (
    *(StopRole, SaveBest, SaveCheckpoint, SetWorkers, SetActors, SetChain, SetMix),
    *(SetLearningRate, SetEntropyCost, StopRun, Note),
)
"""Every kind of directive."""

#: Kind → what a receiver does with it; `ValueError` is a refusal.
Obeyed = Mapping[type[Payload], Callable[[Any], object]]


def obey(message: DirectiveMessage, on: Obeyed) -> DirectiveAck:
    """Do what a directive says; returns the answer to the monitor, with the reason of a refusal.

    Refused are kinds that `on` lacks, values beyond the bounds, and what the receiver refuses.
    """
    kinds = {kind.__name__: kind for kind in on}
    try:
        if message.kind not in kinds:
            raise ValueError(f"it is not obeyed here; expected one of {', '.join(kinds)}")
        kind = kinds[message.kind]
        on[kind](kind.of(message.values))
    except ValueError as error:
        reason = " ".join(f"{message.kind[:64]}: {error}".split())[:_MOST_REASON]
        _LOGGER.error("event=directive_refused id=%d reason=%r", message.id, reason)
        return DirectiveAck(message.id, reason)
    return DirectiveAck(message.id)
