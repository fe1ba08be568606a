"""Which faults a chaos run has: a pure function of its seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.relay import WEATHERS

#: Faults of a role → shortest and longest time in seconds; 0: they are over at once.
OF_ROLES: Mapping[str, tuple[float, float]] = {
    "kill": (0.0, 0.0),
    "segfault": (0.0, 0.0),
    "stop": (1.0, 18.0),  # the longest ones are silence, and end in a kill
    "out_of_memory": (1.0, 3.0),
    "out_of_memory_at_start": (1.0, 3.0),
    "kill_all_but": (0.0, 0.0),
}
#: The same of a connection, and of the disk.
OF_LINKS: Mapping[str, tuple[float, float]] = dict.fromkeys(WEATHERS, (1.0, 4.0))
OF_DISK: Mapping[str, tuple[float, float]] = {"full_disk": (20.0, 20.0)}
KINDS = {**OF_ROLES, **OF_LINKS, **OF_DISK}
#: Chance that another fault begins together with one; a full disk never comes alone.
_TOGETHER = 0.25


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        kind: of `KINDS`.
        target: name of a role or of a connection; "disk".
        for_s: seconds from its begin to its end.
        seed: of its own random numbers.
    """

    kind: str
    target: str
    for_s: float
    seed: int

    def __str__(self) -> str:
        length = f" for {self.for_s:g} s" if self.for_s else ""
        return f"{self.kind} {self.target}{length}"


@dataclass(frozen=True)
class Cast:
    """The roles and the connections that faults may hit."""

    roles: Sequence[str]
    links: Sequence[str]


def plan(seed: int, cast: Cast) -> Iterator[tuple[Fault, ...]]:
    """Rounds of faults without end; those of a round begin together.

    Each kind comes once before one comes again, and so does each role and each connection.
    """
    rng = random.Random(f"chaos {seed}")  # of text: the same numbers in every version of Python
    decks = {
        "roles": _deck(rng, cast.roles),
        "links": _deck(rng, cast.links),
        "disk": _deck(rng, ("disk",)),
    }
    kinds = _deck(rng, tuple(KINDS))

    def fault(kind: str) -> Fault:
        of = "roles" if kind in OF_ROLES else "links" if kind in OF_LINKS else "disk"
        shortest, longest = KINDS[kind]
        for_s = round(rng.uniform(shortest, longest), 1)
        target = next(decks[of])
        if (kind, target) == ("mix", "monitor"):
            # without keys a heartbeat may then have another name or number, and lines of metrics,
            # by which a run is judged, have what heartbeats say
            kind = "refuse"
        return Fault(kind, target, for_s, rng.randrange(2**31))

    while True:
        faults = [fault(next(kinds))]
        if faults[0].kind in OF_DISK or rng.random() < _TOGETHER:
            faults.append(fault(rng.choice([kind for kind in KINDS if kind not in OF_DISK])))
        yield tuple(faults)


def _deck(rng: random.Random, cards: Sequence[str]) -> Iterator[str]:
    """The cards in a random order, again and again in another one."""
    while True:
        yield from rng.sample(list(cards), len(cards))
