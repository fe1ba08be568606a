"""Puts together the unrolls that an actor's policies have of the same steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from aclearn.config import MAX_PROCESSES
from aclearn.types import Unroll


class JointUnrolls:
    """Keeps the unrolls of an actor's newest number until there is one of each policy. Pure.

    An actor sends them together. Those that stay alone, since another one was lost or the actor
    has died, are forgotten: their steps were never admitted, and count as a gap.

    Args:
        policies: names of those that learn.
        most: actors of which unrolls are kept; the one silent longest is forgotten first.
    """

    def __init__(self, policies: Collection[str], *, most: int = MAX_PROCESSES) -> None:
        self._policies, self._most = frozenset(policies), most
        self._waiting: OrderedDict[str, tuple[int, dict[str, Unroll]]] = OrderedDict()

    def add(
        self, incarnation: str, number: int, policy: str, unroll: Unroll
    ) -> dict[str, Unroll] | None:
        """Policy → unroll of this number, once all are there; None before."""
        known = self._waiting.pop(incarnation, None)
        unrolls = known[1] if known is not None and known[0] == number else {}
        unrolls[policy] = unroll
        if unrolls.keys() == self._policies:
            return unrolls
        self._waiting[incarnation] = number, unrolls
        while len(self._waiting) > self._most:
            self._waiting.popitem(last=False)
        return None
