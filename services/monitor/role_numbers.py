"""The numbers in the names of roles that the monitor hands out."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import NamedTuple

from aclearn.config import MAX_PROCESSES

#: Seconds in which no other process gets a number that was handed out: it may make environments.
_KEPT_S = 3600.0
#: Seconds in which it cannot be taken with --name either. Later its process may be dead: one that
#: lives asks for another number.
_HELD_S = 5.0


class _Given(NamedTuple):
    role: str
    number: int
    at: float


class HandedOutNumbers:
    """Numbers of processes that have asked for one and have not said hello yet. Pure.

    Args:
        first: role → its lowest number to hand out, 0 where it is missing.
    """

    def __init__(self, first: Mapping[str, int]) -> None:
        self._first = dict(first)
        self._given: dict[str, _Given] = {}

    def give(self, incarnation: str, role: str, taken: Collection[int], now: float) -> int:
        """The lowest free number of `role`; the same one to a process that asks again.

        Args:
            incarnation: of the process that asks.
            role: its role.
            taken: numbers of that role that others have.
            now: the clock's value, in seconds.
        """
        known = self._given.pop(incarnation, None)
        if known is not None and known.role == role:
            number = known.number
        else:
            given = {
                each.number
                for each in self._given.values()
                if each.role == role and now - each.at <= _KEPT_S
            }
            numbers = itertools.count(self._first.get(role, 0))
            number = next(n for n in numbers if n not in given and n not in taken)
        self._given[incarnation] = _Given(role, number, now)
        if len(self._given) > MAX_PROCESSES:
            del self._given[next(iter(self._given))]  # the one that asked the longest ago
        return number

    def holder(self, role: str, number: int, now: float) -> str | None:
        """The incarnation that has been given that number a moment ago; None where it is free."""
        for incarnation, each in self._given.items():
            if (each.role, each.number) == (role, number) and now - each.at <= _HELD_S:
                return incarnation
        return None

    def settle(self, incarnation: str, role: str, number: int) -> None:
        """This process has said hello: its name is known from that, and no other process has it."""
        self._given = {
            other: each
            for other, each in self._given.items()
            if other != incarnation and (each.role, each.number) != (role, number)
        }
