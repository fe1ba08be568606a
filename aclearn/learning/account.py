"""The account of every agent step: produced = learned + dropped by reason + in flight."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pydantic import BaseModel, Field, PrivateAttr, field_serializer, field_validator

from aclearn.config import MAX_PROCESSES
from aclearn.errors import CheckpointError, words_of
from aclearn.types import CLOSED_REPORTED, DEFAULT_POLICY, MOST_ID_BYTES

_MAX_STEPS: Final = 2**53
"""Largest count that JSON readers represent exactly; larger claims are refused."""
_MAX_GAP: Final = 2**40
"""Most steps that one unroll may add, so that one false claim cannot exhaust the account."""
UNFIT: Final = ("unknown_policy", "bad_unroll", "quota")
"""Reasons of unrolls that are refused before anything is learned of them: the trainer believes them
no count beyond the steps that they have."""
_MAX_REASONS: Final = 64
"""Actors choose reasons: further ones are counted together as "other"."""
_CLOSED_KEPT: Final = 4096
"""Closed incarnations that stay fenced; the oldest is forgotten first."""
_MOST_REASON_BYTES: Final = 64
"""Longest names of reasons: one heartbeat has all."""


class AccountError(AssertionError):
    """The account does not balance: a bug of the caller, not of a peer."""


class _Seen(BaseModel):
    """The counters of an incarnation's last unroll."""

    sequence: int
    env_steps: int
    dropped: dict[str, int]


_NOTHING_SEEN: Final = _Seen(sequence=-1, env_steps=0, dropped={})


class StepAccount(BaseModel):
    """The trainer's account of agent steps, by actor incarnation. Thread-safe, without a clock.

    No peer can unbalance it: inconsistent counters are refused with a reason. Invalid calls of our
    own code (learning more than is in flight) raise `AccountError`.

    Attributes:
        env_steps: agent steps, as all counts, that the trainer knows to have been taken.
        in_flight_steps: admitted and neither learned nor dropped yet.
        opened: incarnations that have sent an unroll and are not closed.
        closed: steps of the closed incarnations, the oldest first.
        forgotten_steps: of incarnations that are not kept any more.
        max_env_steps: after which further ones are dropped on arrival; not saved.
        reached: the bound that the run has reached, `max_updates` or `max_env_steps`: the reason
            for later drops; None before.
        elsewhere: agent steps of the other ranks, of which the bound counts the sum; not saved.
        ahead: unrolls of an actor that may be in flight or being filled, and of those of the other
            ranks, which have as many; not saved.
        beside: agent steps of the run's other policies, of which the bound counts the sum; not
            saved.
        coming: agent steps of so many more unrolls of each actor; not saved.
        most_open: open incarnations, of which one more closes the one that has been silent for
            longest; not saved.
    """

    policy: str = DEFAULT_POLICY
    env_steps: int = 0
    learned_steps: int = 0
    in_flight_steps: int = 0
    dropped_steps: dict[str, int] = Field(default_factory=dict)
    opened: dict[str, _Seen] = Field(default_factory=dict)
    closed: dict[str, int] = Field(default_factory=dict)
    forgotten_steps: int = 0
    max_env_steps: float = Field(default=math.inf, exclude=True)
    elsewhere: int = Field(default=0, exclude=True)
    ahead: int = Field(default=2, exclude=True)
    reached: str | None = Field(default=None, exclude=True)
    beside: int = Field(default=0, exclude=True)
    coming: int = Field(default=0, exclude=True)
    most_open: int = Field(default=MAX_PROCESSES, exclude=True)
    _lock: Any = PrivateAttr(default_factory=threading.RLock)

    @field_validator("closed", mode="before")
    @classmethod
    def _of_pairs(cls, closed: Any) -> Any:
        return dict(closed) if isinstance(closed, list) else closed

    @field_serializer("closed")
    def _as_pairs(self, closed: dict[str, int]) -> list[tuple[str, int]]:
        return list(closed.items())  # a mapping would lose its order in a checkpoint

    def admit(
        self,
        incarnation: str,
        unroll_sequence: int,
        env_steps_before: int,
        env_steps_after: int,
        actor_dropped: Mapping[str, int],
        steps: int,
        reason: str | None = None,
    ) -> str | None:
        """Put the valid steps of an unroll in flight, or drop them, or refuse to count them.

        Steps between the last unroll seen and `env_steps_before` are counted as dropped: under the
        actor's own reasons as far as `actor_dropped` explains them, the rest as "lost". An unknown
        incarnation starts at zero, so a restarted trainer counts missed steps the same way. Beyond
        the largest number of processes, the incarnation that has been silent longest is closed.

        An unroll with a reason of `UNFIT` must follow the last one seen, with valid steps alone.
        Otherwise nothing of it is counted: its steps are in the gap before the next good one.

        Args:
            unroll_sequence: number of the unroll within the incarnation, growing.
            actor_dropped: steps that the actor has dropped since its start, by reason.
            steps: valid steps in the unroll.
            reason: why they are not to be learned; None if they may be.

        Returns:
            None if the steps are in flight. "closed_incarnation", "duplicate",
            "inconsistent_counter" or "long_names" if nothing is counted. Otherwise why they are
            dropped: the bound that is reached, or `reason`.
        """
        counts = env_steps_before, env_steps_after, actor_dropped, steps
        with self._lock:
            reason = self.reached or reason
            if reason in UNFIT and not self._follows(incarnation, *counts):
                return "inconsistent_counter"
            refusal = self._enter(incarnation, unroll_sequence, *counts)
            if refusal is None:
                more = self.ahead * len(self.opened)
                self.coming = more * (env_steps_after - env_steps_before)
                if reason is not None:
                    self.dropped(reason, steps)
            return refusal or reason

    def produced(self, incarnation: str, steps: int) -> None:
        """Put steps in flight that this process, of this incarnation, itself has taken."""
        with self._lock:
            seen = self.opened.get(incarnation) or _NOTHING_SEEN
            before, sequence = seen.env_steps, seen.sequence + 1
            refusal = self._enter(incarnation, sequence, before, before + steps, {}, steps)
            assert refusal is None, refusal

    def _follows(
        self, incarnation: str, before: int, after: int, dropped: Mapping[str, int], steps: int
    ) -> bool:
        """Whether an unroll adds its valid steps to those seen, and nothing else."""
        seen = self.opened.get(incarnation) or _NOTHING_SEEN
        return (before, after, dict(dropped)) == (seen.env_steps, before + steps, seen.dropped)

    def _enter(
        self,
        incarnation: str,
        unroll_sequence: int,
        env_steps_before: int,
        env_steps_after: int,
        actor_dropped: Mapping[str, int],
        steps: int,
    ) -> str | None:
        """Count an unroll's steps as in flight; a refusal changes nothing."""
        names = len(incarnation.encode()) <= MOST_ID_BYTES and all(
            len(reason.encode()) <= _MOST_REASON_BYTES for reason in actor_dropped
        )
        if not names or len(actor_dropped) > _MAX_REASONS:
            return "long_names"
        if incarnation in self.closed:
            return "closed_incarnation"
        seen = self.opened.get(incarnation) or _NOTHING_SEEN
        if unroll_sequence <= seen.sequence:
            return "duplicate"
        gap = env_steps_before - seen.env_steps
        in_unroll = env_steps_after - env_steps_before
        newly_dropped = {
            reason: actor_dropped.get(reason, 0) - seen.dropped.get(reason, 0)
            for reason in {**seen.dropped, **actor_dropped}
        }
        dropped_in_unroll = in_unroll - steps
        dropped_in_gap = sum(newly_dropped.values()) - dropped_in_unroll
        consistent = (
            steps >= 0
            and dropped_in_unroll >= 0
            and all(count >= 0 for count in newly_dropped.values())
            and 0 <= dropped_in_gap <= gap
            and gap + in_unroll <= _MAX_GAP
            and self.env_steps + gap + in_unroll <= _MAX_STEPS
        )
        if not consistent:
            return "inconsistent_counter"
        # put last: the first is the one that has been silent longest
        self.opened.pop(incarnation, None)
        self.opened[incarnation] = _Seen(
            sequence=unroll_sequence, env_steps=env_steps_after, dropped=dict(actor_dropped)
        )
        while len(self.opened) > self.most_open:
            self.close(next(iter(self.opened)))
        self.env_steps += gap + in_unroll
        self.in_flight_steps += steps
        for reason, count in newly_dropped.items():
            self._count_dropped(reason, count)
        self._count_dropped("lost", gap - dropped_in_gap)
        self._look_at_bound()
        return None

    @contextmanager
    def batch(
        self, steps: int, finished: Callable[[], bool] = lambda: False
    ) -> Iterator[OpenBatch]:
        """Account for a batch's new steps, which are in flight.

        Those of which the block tells no fate are dropped at its end, also if it raises.

        Args:
            finished: whether the policy has made all its updates.
        """
        open_batch = OpenBatch(self, steps)
        reason = "worker_failed"
        try:
            yield open_batch
            ended = self.reached == "max_updates" or finished()
            reason = "max_updates" if ended else "shutdown"
        finally:
            if open_batch.left > 0:
                self.dropped(reason, open_batch.left)

    @contextmanager
    def dropped_on_error(self, steps: int) -> Iterator[None]:
        """Drop `steps`, which are in flight, if the block raises."""
        try:
            yield
        except BaseException:
            self.dropped("worker_failed", steps)
            raise

    def learned(self, steps: int) -> None:
        """Move `steps` from in flight to learned; raises `AccountError` if fewer are in flight."""
        with self._lock:
            self._leave_flight(steps, "learned")
            self.learned_steps += steps

    def dropped(self, reason: str, steps: int) -> None:
        """Move `steps` from in flight to dropped; raises `AccountError` if fewer are in flight."""
        with self._lock:
            self._leave_flight(steps, f"dropped as {reason!r}")
            self._count_dropped(reason, steps)

    def close(self, incarnation: str) -> None:
        """Fence an incarnation: its unrolls are refused from now on. Its steps in flight stay."""
        with self._lock:
            if incarnation in self.closed:
                return
            seen = self.opened.pop(incarnation, None) or _NOTHING_SEEN
            self.closed[incarnation] = seen.env_steps
            if len(self.closed) > _CLOSED_KEPT:
                self.forgotten_steps += self.closed.pop(next(iter(self.closed)))

    def close_all(self) -> None:
        """Close every open incarnation."""
        for incarnation in list(self.opened):
            self.close(incarnation)

    def counters(self) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
        """Counters, dropped steps by reason, and steps by actor, at the same moment.

        The last has the agent steps in `env_steps` by incarnation, of those that are open or were
        closed lately; `MetricsAggregator` adds what the actors tell.
        """
        with self._lock:
            self.check()
            closed = list(self.closed.items())[-CLOSED_REPORTED:]
            seen = {name: seen.env_steps for name, seen in self.opened.items()} | dict(closed)
            counters = {
                "env_steps": self.env_steps,
                "learned_steps": self.learned_steps,
                "in_flight_steps": self.in_flight_steps,
            }
            return counters, dict(self.dropped_steps), seen

    def check(self) -> None:
        """Raise `AccountError` with all counts unless they balance, in total and by incarnation."""
        accounted = self.learned_steps + sum(self.dropped_steps.values()) + self.in_flight_steps
        by_incarnation = (
            sum(seen.env_steps for seen in self.opened.values())
            + sum(self.closed.values())
            + self.forgotten_steps
        )
        negative = min(self.in_flight_steps, self.learned_steps, *self.dropped_steps.values(), 0)
        if self.env_steps != accounted or self.env_steps != by_incarnation or negative < 0:
            raise AccountError(
                f"the step account does not balance: env_steps={self.env_steps} "
                f"learned={self.learned_steps} dropped={self.dropped_steps} "
                f"in_flight={self.in_flight_steps} (together {accounted}), "
                f"by incarnation {by_incarnation}: open="
                f"{ {name: seen.env_steps for name, seen in self.opened.items()} } "
                f"closed={sum(self.closed.values())} forgotten={self.forgotten_steps}"
            )

    def hear(self, elsewhere: int) -> None:
        """Take the number of agent steps that the other ranks have."""
        with self._lock:
            self.elsewhere = elsewhere
            self._look_at_bound()

    def hear_beside(self, beside: int) -> None:
        """Take the number of agent steps that the other policies have."""
        with self._lock:
            self.beside = beside
            self._look_at_bound()

    def end(self, bound: str | None) -> None:
        """Drop steps that arrive from now on, since this bound is reached; the first one stays."""
        self.reached = self.reached or bound

    @classmethod
    def joined(cls, ledgers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The sum of the `state` of several accounts, of ranks with actors of their own."""
        if len(ledgers) == 1:
            return dict(ledgers[0])
        total = cls(policy=ledgers[0]["policy"])
        for each in map(cls.model_validate, ledgers):
            total.env_steps += each.env_steps
            total.learned_steps += each.learned_steps
            total.in_flight_steps += each.in_flight_steps
            total.forgotten_steps += each.forgotten_steps
            total.opened |= each.opened
            for incarnation, steps in each.closed.items():
                total.closed[incarnation] = total.closed.get(incarnation, 0) + steps
            for reason, steps in each.dropped_steps.items():
                total._count_dropped(reason, steps)
        total.check()
        return total.state()

    @classmethod
    def reckoned(
        cls, ledgers: Sequence[Mapping[str, Any]], env_steps: int, learned_steps: int
    ) -> dict[str, Any]:
        """The sum of older `state`s of accounts that cannot be asked, with newer counts of them.

        Steps of which no fate is known are dropped as "lost".
        """
        total = cls.model_validate(cls.joined(ledgers))
        dropped = sum(total.dropped_steps.values())
        env_steps = max(env_steps, total.env_steps, learned_steps + dropped)
        total.forgotten_steps += env_steps - total.env_steps
        total.env_steps, total.learned_steps, total.in_flight_steps = env_steps, learned_steps, 0
        total._count_dropped("lost", env_steps - learned_steps - dropped)
        total.check()
        return total.state()

    def state(self) -> dict[str, Any]:
        """The account as JSON-able values, for a checkpoint."""
        with self._lock:
            return self.model_dump()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue the account of an earlier trainer.

        Steps that were in flight are dropped as "trainer_restart". Unrolls after the checkpoint
        appear as a gap before the actors' next unrolls.

        Raises:
            CheckpointError: `state` is not a result of `state()`, or does not balance.
        """
        saved = {name for name, field in type(self).model_fields.items() if not field.exclude}
        try:
            if missing := saved - state.keys():
                raise KeyError(*sorted(missing))
            account = StepAccount.model_validate(state, strict=True)
            account.check()
            if account.policy != self.policy:
                raise ValueError(f"policy: expected {self.policy!r}, got {account.policy!r}")
        except (KeyError, TypeError, ValueError, AttributeError, AccountError) as error:
            raise CheckpointError(
                f"the step account in the checkpoint cannot be used ({words_of(error)}); start "
                "again from an older checkpoint or under another run.name"
            ) from error
        account.dropped("trainer_restart", account.in_flight_steps)
        with self._lock:
            for name in saved:
                setattr(self, name, getattr(account, name))
            self._look_at_bound()

    def _look_at_bound(self) -> None:
        if self.env_steps + self.elsewhere + self.beside >= self.max_env_steps:
            self.end("max_env_steps")

    def _leave_flight(self, steps: int, how: str) -> None:
        if not 0 <= steps <= self.in_flight_steps:
            raise AccountError(
                f"{steps} steps cannot be {how}: {self.in_flight_steps} are in flight "
                f"(env_steps={self.env_steps} learned={self.learned_steps} "
                f"dropped={self.dropped_steps})"
            )
        self.in_flight_steps -= steps

    def _count_dropped(self, reason: str, steps: int) -> None:
        if steps == 0:
            return
        if reason not in self.dropped_steps and len(self.dropped_steps) >= _MAX_REASONS:
            reason = "other"
        self.dropped_steps[reason] = self.dropped_steps.get(reason, 0) + steps


class OpenBatch:
    """The new steps of a batch whose fate is not known yet."""

    def __init__(self, account: StepAccount, steps: int) -> None:
        self._account, self.left = account, steps

    def learned(self, steps: int) -> None:
        """Count steps that entered an update."""
        self._account.learned(steps)
        self.left -= steps

    def dropped(self, reason: str, steps: int) -> None:
        """Count steps that will not be learned."""
        self._account.dropped(reason, steps)
        self.left -= steps
