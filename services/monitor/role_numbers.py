"""The numbers in role names that the monitor hands out."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
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
        self._given: dict[str, _Given] = {}

    def give(
        self,
        incarnation: str,
        role: str,
        taken: Collection[int],
        now: float,
        *,
        most: int | None = None,
    ) -> int | None:
        """The lowest number of `role` that is not taken; the same one if a process asks again.

        Args:
            most: how many numbers there are, from 0; None of them is left: None.
        """
        known = self._given.pop(incarnation, None)
        if known is not None and known.role == role:
            number = known.number
        else:
            kept_s = _KEPT_S if most is None else _KEPT_OF_FEW_S
            given = {
                each.number
                for each in self._given.values()
                if each.role == role and now - each.at <= kept_s
            }
            numbers = itertools.count(self._first.get(role, 0)) if most is None else range(most)
            free = (n for n in numbers if n not in given and n not in taken)
            if (found := next(free, None)) is None:
                return None
            number = found
        self._given[incarnation] = _Given(role, number, now)
        if len(self._given) > MAX_PROCESSES:
            del self._given[next(iter(self._given))]  # the oldest request
        return number

    def holder(self, role: str, number: int, now: float) -> str | None:
        """The incarnation that was given this number a moment ago; None if the number is free."""
        for incarnation, each in self._given.items():
            if (each.role, each.number) == (role, number) and now - each.at <= _HELD_S:
                return incarnation
        return None

    def settle(self, incarnation: str, role: str, number: int) -> None:
        """Drop the number of a process that said hello."""
        self._given = {
            other: each
            for other, each in self._given.items()
            if other != incarnation and (each.role, each.number) != (role, number)
        }
