"""Puts together the unrolls that an actor's policies have of the same steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from aclearn.types import Unroll

#: An actor that lives has sent its unrolls again long before.
_KEPT_S = 60.0


@dataclass(eq=False)
class OfOneNumber:
    """Unrolls of the same steps of an actor.

    Attributes:
        sender: who waits for the answer.
        unrolls: by policy.
        reasons: by policy, why its unroll is not to be learned; None if it may be.
        came_at: when the newest came.
    """

    sender: bytes
    number: int
    unrolls: dict[str, Unroll] = field(default_factory=dict)
    reasons: dict[str, str | None] = field(default_factory=dict)
    came_at: float = 0.0

    @property
    def reason(self) -> str | None:
        """Why they are not to be learned together; None if they may be."""
        return next((reason for reason in self.reasons.values() if reason is not None), None)

    @property
    def nbytes(self) -> int:
        """Bytes of their arrays."""
        return sum(unroll.nbytes for unroll in self.unrolls.values())


class JointUnrolls:
    """Keeps the unrolls of an actor's newest number until there is one of each policy.

    An actor sends them together. Those that stay alone, since another one was lost or the actor
    has left, are forgotten after a minute: their steps were never admitted, and count as a gap.
    Beyond a bound those of the actor silent longest are forgotten earlier.

    Args:
        policies: names of those that learn.
        most_bytes: of the kept unrolls; those that came last stay in any case.
        on_forgotten: called with those that are forgotten.
        most: actors of which unrolls are kept.
    """

    def __init__(
        self,
        policies: Collection[str],
        *,
        most_bytes: int,
        clock: Callable[[], float],
        on_forgotten: Callable[[OfOneNumber], None],
        most: int,
    ) -> None:
        self._policies, self._clock = frozenset(policies), clock
        self._on_forgotten = on_forgotten
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0
        self._waiting: OrderedDict[str, OfOneNumber] = OrderedDict()  # the newest last

    def add(
        self,
        incarnation: str,
        number: int,
        policy: str,
        unroll: Unroll,
        *,
        sender: bytes,
        reason: str | None = None,
    ) -> OfOneNumber | None:
        """Those of this number, once all are there; None before.

        Args:
            sender: who waits for the answer.
            reason: why the unroll is not to be learned; None if it may be.
        """
        known = self._waiting.pop(incarnation, None)
        self._bytes -= 0 if known is None else known.nbytes
        if known is None or known.number != number:
            known = OfOneNumber(sender, number)
        own = known
        own.unrolls[policy], own.reasons[policy] = unroll, reason
        if own.unrolls.keys() == self._policies:
            return own
        own.came_at = self._clock()
        self._waiting[incarnation] = own
        self._bytes += own.nbytes
        while self._must_forget(own):
            _, oldest = self._waiting.popitem(last=False)
            self._bytes -= oldest.nbytes
            self._on_forgotten(oldest)
        return None

    def _must_forget(self, newest: OfOneNumber) -> bool:
        oldest = next(iter(self._waiting.values()))
        many = len(self._waiting) > self._most or self._bytes > self._most_bytes
        return oldest is not newest and (many or newest.came_at - oldest.came_at > _KEPT_S)
