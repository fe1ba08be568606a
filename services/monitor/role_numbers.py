"""The numbers in role names that the monitor hands out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import NamedTuple

from aclearn.config import MAX_PROCESSES

#: Seconds in which a handed-out number goes to no other process: its process may be making
#: environments.
_KEPT_S = 3600.0
#: The same for a role with an exact number of processes, whose others would wait for the number.
_KEPT_OF_FEW_S = 30.0
#: Seconds in which --name cannot take it either. Later its process may be dead; if it lives, it
#: asks for another number.
_HELD_S = 5.0


class _Given(NamedTuple):
    role: str
    number: int
    at: float


class HandedOutNumbers:
    """Numbers of processes that have not said hello yet. Pure.

    Those of a role begin with its entry in `first`, or with 0.
    """

    def __init__(self, first: Mapping[str, int]) -> None:
        self._first = dict(first)
        #: By incarnation, the oldest request first; and the incarnation by role and number.
        self._given: dict[str, _Given] = {}
        self._holders: dict[tuple[str, int], str] = {}
        #: Role → number below which none is free, so that the search is short in a large run.
        self._lowest: dict[str, int] = {}

    def give(
        self,
        incarnation: str,
        role: str,
        is_taken: Callable[[int], bool],
        now: float,
        *,
        most: int | None = None,
    ) -> int | None:
        """The lowest number of `role` that is not taken; the same one if a process asks again.

        Args:
            most: how many numbers there are, from 0; None of them is left: None.
        """
        self._drop_old(now)
        known = self._given.get(incarnation)
        if known is not None and known.role == role:
            number = known.number
        else:
            numbers = itertools.count(self._lowest_of(role)) if most is None else range(most)
            kept_s = _KEPT_S if most is None else _KEPT_OF_FEW_S
            free = (n for n in numbers if not is_taken(n) and not self._held(role, n, now, kept_s))
            if (found := next(free, None)) is None:
                return None
            number = found
            if most is None:
                self._lowest[role] = number + 1
        self.settle(incarnation, role, number)
        self._given[incarnation] = _Given(role, number, now)
        self._holders[role, number] = incarnation
        if len(self._given) > MAX_PROCESSES:
            self._drop(next(iter(self._given)))  # the oldest request
        return number

    def holder(self, role: str, number: int, now: float) -> str | None:
        """The incarnation that was given this number a moment ago; None if the number is free."""
        return self._holders[role, number] if self._held(role, number, now, _HELD_S) else None

    def settle(self, incarnation: str, role: str, number: int) -> None:
        """Drop the number of a process that said hello."""
        if (holder := self._holders.get((role, number))) is not None:
            self._drop(holder, frees=False)
        self._drop(incarnation)

    def free(self, role: str, number: int) -> None:
        """Note that a number is no process's any more."""
        if number >= self._first.get(role, 0):
            self._lowest[role] = min(self._lowest_of(role), number)

    def _lowest_of(self, role: str) -> int:
        return self._lowest.get(role, self._first.get(role, 0))

    def _held(self, role: str, number: int, now: float, kept_s: float) -> bool:
        """Whether a process that was given this number in the last seconds may be starting."""
        holder = self._holders.get((role, number))
        return holder is not None and now - self._given[holder].at <= kept_s

    def _drop(self, incarnation: str, *, frees: bool = True) -> None:
        if (given := self._given.pop(incarnation, None)) is not None:
            del self._holders[given.role, given.number]
            if frees:
                self.free(given.role, given.number)

    def _drop_old(self, now: float) -> None:
        while self._given and now - next(iter(self._given.values())).at > _KEPT_S:
            self._drop(next(iter(self._given)))
