"""Totals of agent steps: the trainer's account and the actors' newer counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from aclearn.config import MAX_PROCESSES

_MOST_STEPS: Final = 2**53
_GONE_KEPT: Final = MAX_PROCESSES
"""Dead actors that are remembered singly; older ones are summed."""


@dataclass(frozen=True)
class Totals:
    """Agent steps: `env_steps = learned_steps + sum(dropped_steps) + in_flight_steps`."""

    env_steps: int
    learned_steps: int
    dropped_steps: dict[str, int]
    in_flight_steps: int


class StepTotals:
    """Joins the trainer's account with the actors' own counters, exactly.

    Steps that the trainer has not seen are in flight while their actor lives, and "actor_lost" once
    it is gone. A trainer restarted from a checkpoint has seen less than its predecessor; the counts
    of dead actors are therefore kept until the trainer stops naming them.

    The sums are kept, so that an actor's count takes the same time for any number of actors. They
    are whole numbers, which do not drift; each account of a trainer makes them again.
    """

    def __init__(self) -> None:
        self._trainer: str | None = None
        self._account = Totals(0, 0, {}, 0)
        self._seen: dict[str, int] = {}
        self._live: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._settled_lost = 0
        #: Steps of living and of dead actors that the trainer has not seen.
        self._on_the_way = self._unseen_of_gone = 0

    def observe_trainer(
        self,
        incarnation: str,
        counters: Mapping[str, int],
        dropped: Mapping[str, int],
        account: Mapping[str, int],
    ) -> None:
        """Set a trainer's account: counters, dropped steps, and steps by actor."""
        seen = dict(account)
        if incarnation == self._trainer:
            for actor in (self._seen.keys() - seen.keys()) & self._gone.keys():
                self._settle(actor)
            # A trainer stops naming actors closed long ago; living ones keep their counts.
            seen |= {
                actor: self._seen[actor]
                for actor in self._live.keys() & self._seen.keys()
                if actor not in seen
            }
        self._trainer = incarnation
        self._seen = seen
        for known in (self._live, self._gone):
            # A dead actor's last unroll may arrive without the heartbeat that counts its steps. A
            # later trainer may start from a checkpoint without that unroll.
            for actor in known.keys() & seen.keys():
                known[actor] = max(known[actor], seen[actor])
        self._account = Totals(
            env_steps=counters.get("env_steps", 0),
            learned_steps=counters.get("learned_steps", 0),
            dropped_steps=dict(dropped),
            in_flight_steps=counters.get("in_flight_steps", 0),
        )
        self._add_up()

    def observe_actor(self, incarnation: str, env_steps: int) -> None:
        """Set an actor's own count of agent steps; one that was taken for gone is back."""
        gone = self._gone.pop(incarnation, 0)
        live = self._live.get(incarnation, 0)
        self._unseen_of_gone -= self._unseen(incarnation, gone)
        self._on_the_way -= self._unseen(incarnation, live)
        steps = self._live[incarnation] = max(gone, live, env_steps)
        self._on_the_way += self._unseen(incarnation, steps)

    def actor_gone(self, incarnation: str) -> None:
        """Count this actor's steps that the trainer never saw as lost."""
        if incarnation in self._live:
            steps = self._gone[incarnation] = self._live.pop(incarnation)
            unseen = self._unseen(incarnation, steps)
            self._on_the_way -= unseen
            self._unseen_of_gone += unseen
            if len(self._gone) > _GONE_KEPT:
                self._settle(next(iter(self._gone)))

    @property
    def accounted_env_steps(self) -> int:
        """Agent steps in the trainer's account."""
        return self._account.env_steps

    @property
    def env_steps(self) -> int:
        """Agent steps by the latest counts of every role."""
        return self._account.env_steps + self._on_the_way + self._lost

    def totals(self) -> Totals:
        """The totals by the latest counts of every role."""
        on_the_way, lost = self._on_the_way, self._lost
        dropped = dict(self._account.dropped_steps)
        if lost:
            dropped["actor_lost"] = dropped.get("actor_lost", 0) + lost
        return Totals(
            env_steps=self.env_steps,
            learned_steps=self._account.learned_steps,
            dropped_steps=dropped,
            in_flight_steps=self._account.in_flight_steps + on_the_way,
        )

    def state(self) -> dict[str, Any]:
        """The totals as JSON-able values, for the monitor's successor."""
        return {
            "trainer": self._trainer,
            "account": asdict(self._account),
            "seen": dict(self._seen),
            "live": dict(self._live),
            "gone": dict(self._gone),
            "settled_lost": self._settled_lost,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> StepTotals:
        """The totals of another monitor's state; its actors are gone until they report again.

        Raises:
            ValueError: `state` is not from `state()`.
        """
        totals = cls()
        try:
            account = state["account"]
            totals._trainer = None if state["trainer"] is None else str(state["trainer"])
            totals._account = Totals(
                env_steps=count_of(account["env_steps"]),
                learned_steps=count_of(account["learned_steps"]),
                dropped_steps=counts_of(account["dropped_steps"]),
                in_flight_steps=count_of(account["in_flight_steps"]),
            )
            totals._seen = counts_of(state["seen"])
            totals._gone = counts_of(state["gone"]) | counts_of(state["live"])
            totals._settled_lost = count_of(state["settled_lost"])
            totals._add_up()
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as exc:
            raise ValueError(f"not a state of a monitor ({type(exc).__name__}: {exc})") from exc
        return totals

    def _unseen(self, actor: str, env_steps: int) -> int:
        return max(0, env_steps - self._seen.get(actor, 0))

    @property
    def _lost(self) -> int:
        return self._settled_lost + self._unseen_of_gone

    def _settle(self, actor: str) -> None:
        unseen = self._unseen(actor, self._gone.pop(actor))
        self._settled_lost += unseen
        self._unseen_of_gone -= unseen

    def _add_up(self) -> None:
        self._on_the_way = sum(self._unseen(*each) for each in self._live.items())
        self._unseen_of_gone = sum(self._unseen(*each) for each in self._gone.items())


def counts_of(values: Mapping[str, Any]) -> dict[str, int]:
    """Counts by name, from a saved state.

    Raises:
        ValueError: they are none.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{values!r:.100} are no counts")
    return {str(name): count_of(count) for name, count in values.items()}


def count_of(value: Any) -> int:
    """A count, from a saved state.

    Raises:
        ValueError: it is none.
    """
    try:
        count = int(value)
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{value!r:.100} is no count") from error
    if not 0 <= count <= _MOST_STEPS:
        raise ValueError(f"{count}; expected a count of 0 to 2^53")
    return count
