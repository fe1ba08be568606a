"""Directives to the roles: numbered, and sent again until acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aclearn.control import DIRECTIVES, Directive, Payload
from services.monitor.registry import Member, OutgoingMessage

_LOGGER = logging.getLogger(__name__)

#: Ranks of the monitor's own directives and, below, of a user's; above every plug-in's.
MONITOR_RANK, USER_RANK = 1_000_000, 999_999
#: The name of who gives a user's directives.
USER = "user"
#: Seconds before an unacknowledged directive is sent again: the first six times, then.
_AGAIN_AFTER_S, _OFTEN, _RARELY_S = 0.5, 6, 8.0


@contextmanager
def _logged(what: object) -> Iterator[None]:
    """Log what is wrong with a part of a file that may hold anything."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        _LOGGER.error("event=directive_not_restored what=%.200r reason=%r", what, repr(error))


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"expected a count, got {value!r:.50}")
    return value


class _Standing(NamedTuple):
    """A numbered directive that is in force."""

    id: int
    directive: Directive
    #: Name of the plug-in that gave it.
    by: str
    #: Incarnations that receive it; None for all, including later ones.
    only: set[str] | None = None
    #: What it replaced, which holds again if it is withdrawn.
    before: Directive | None = None


@dataclass
class _Delivery:
    """The newest directive of one kind that was sent to a process."""

    id: int
    name: str
    times: int = 0
    at: float = float("-inf")
    acknowledged: bool = False

    def is_due(self, now: float) -> bool:
        wait_s = _AGAIN_AFTER_S if self.times < _OFTEN else _RARELY_S
        return not self.acknowledged and not 0.0 <= now - self.at < wait_s


@dataclass
class DirectiveChannel:
    """Directives in force and their deliveries. Pure: time is an argument; it sends nothing.

    One directive of each kind is in force for a receiver: that of the highest rank, and within one
    rank the newest. Processes that start later get it too.

    Attributes:
        issued: number of directives so far; the id of the newest.
        overruled: those that a higher rank contradicted.
        refused: deliveries that a receiver refused.
    """

    issued: int = 0
    overruled: int = 0
    refused: int = 0
    #: What plug-ins gave for once, and every receiver has: by `to`, kind of payload and rank.
    _done: dict[tuple[str, type, int], Payload] = field(default_factory=dict)
    #: By `to` and kind of payload, then by rank.
    _standing: dict[tuple[str, type], dict[int, _Standing]] = field(default_factory=dict)
    _deliveries: dict[tuple[str, type], _Delivery] = field(default_factory=dict)
    _receivers: list[Member] = field(default_factory=list)

    def meet(self, receivers: Sequence[Member]) -> None:
        """Replace the receivers by the present members; deliveries to others are dropped."""
        self._receivers = list(receivers)
        there = {receiver.incarnation for receiver in receivers}
        self._deliveries = {key: d for key, d in self._deliveries.items() if key[0] in there}
        have = {
            (incarnation, delivery.id)
            for (incarnation, _), delivery in self._deliveries.items()
            if delivery.acknowledged
        }
        for key, by_rank in list(self._standing.items()):
            for rank, standing in list(by_rank.items()):
                if standing.only is None:
                    continue
                left = standing.only & there
                if all((incarnation, standing.id) in have for incarnation in left):
                    del by_rank[rank]
                    if left:  # else no receiver had it: a repetition may find one
                        self._done[(*key, rank)] = standing.directive.payload
            if not by_rank:
                del self._standing[key]

    def issue(self, directive: Directive, *, by: str, rank: int = MONITOR_RANK) -> None:
        """Put a plug-in's directive in force; repeating it has no effect, the highest rank wins.

        The monitor itself repeats what has had no effect, such as a checkpoint that failed; a user
        may want the same again.
        """
        payload, key = directive.payload, (directive.to, type(directive.payload))
        if directive.once and rank < USER_RANK and self._done.get((*key, rank)) == payload:
            return
        receivers = {r.incarnation for r in self._receivers if directive.is_for(r.role, r.name)}
        if directive.once and not receivers:
            return
        by_rank = self._standing.setdefault(key, {})
        if (before := by_rank.get(rank)) is not None and (
            (before.directive.payload, before.directive.once) == (payload, directive.once)
        ):
            return
        self._done.pop((*key, rank), None)
        self.issued += 1
        only = receivers if directive.once else None
        replaced = None if before is None or before.only is not None else before.directive
        by_rank[rank] = _Standing(self.issued, directive, by, only, replaced)
        _LOGGER.info(
            "event=directive id=%d by=%s to=%s payload=%r cause=%r",
            *(self.issued, by, directive.to, payload, dict(directive.cause)),
        )
        if (followed := by_rank[max(by_rank)].directive.payload) != payload:
            self.overruled += 1
            _LOGGER.warning(
                "event=directive_overruled by=%s to=%s payload=%r followed=%r",
                *(by, directive.to, payload, followed),
            )

    def state(self) -> dict[str, Any]:
        """The directives in force that outlive a monitor, JSON-able.

        They are those whose payload is `kept`, and those of a user.
        """
        standing = [
            {"id": each.id, "by": each.by, "to": to, "kind": kind.__name__, "values": values}
            for (to, kind), by_rank in self._standing.items()
            for each in by_rank.values()
            if each.only is None
            if (payload := each.directive.payload).kept or each.by == USER
            for values in (payload.values(),)
        ]
        return {"issued": self.issued, "standing": standing}

    def restore(
        self, state: Mapping[str, Any], rank_of: Callable[[str, Directive], int | None]
    ) -> None:
        """Continue from the `state` of an earlier monitor; wrong entries are logged and left.

        `rank_of` a plug-in is None if it is gone, or cannot give the directive.
        """
        with _logged("issued"):
            self.issued = _count(state.get("issued", 0))
        with _logged("standing"):
            for each in state.get("standing", ()):
                with _logged(each):
                    self._restore_one(each, rank_of)

    def _restore_one(
        self, each: Mapping[str, Any], rank_of: Callable[[str, Directive], int | None]
    ) -> None:
        to, by, number = each["to"], each["by"], _count(each["id"])
        kinds = {kind.__name__: kind for kind in DIRECTIVES if kind.kept or by == USER}
        if not (isinstance(to, str) and isinstance(by, str)):
            raise ValueError("to and by are no names")
        directive = Directive(to, kinds[each["kind"]].of(each["values"]))
        if (rank := rank_of(by, directive)) is not None:
            key = to, type(directive.payload)
            self._standing.setdefault(key, {})[rank] = _Standing(number, directive, by)
            # the next one must have a larger id
            self.issued = max(self.issued, number)

    def of_user(self) -> dict[str, dict[str, Any]]:
        """The values of a user's directives in force, by kind."""
        return {
            kind.__name__: each.directive.payload.values()
            for (_, kind), by_rank in self._standing.items()
            for each in by_rank.values()
            if each.by == USER and each.only is None
        }

    def acknowledge(self, incarnation: str, directive_id: int, *, refused: bool = False) -> bool:
        """Note a receiver's acknowledgement; False for an unknown directive, or a repetition."""
        for (receiver, _), delivery in self._deliveries.items():
            if (receiver, delivery.id) == (incarnation, directive_id):
                if delivery.acknowledged:
                    return False
                self.refused += refused
                delivery.acknowledged = True
                return True
        return False

    def withdraw(self, directive_id: int) -> Payload | None:
        """Take a user's directive out of force, so that the one before holds, or a plug-in's.

        Returns:
            Its payload; None: no directive of a user has this id.
        """
        for key, by_rank in self._standing.items():
            each = by_rank.get(USER_RANK)
            if each is None or each.id != directive_id:
                continue
            del by_rank[USER_RANK]
            if each.before is not None:
                self.issued += 1
                by_rank[USER_RANK] = _Standing(self.issued, each.before, each.by)
            if not by_rank:
                del self._standing[key]
            return each.directive.payload
        return None

    def messages(self, now: float) -> list[OutgoingMessage]:
        """The unacknowledged directives that are due at `now`, in seconds."""
        messages = []
        for receiver in self._receivers:
            for each in self._standing_for(receiver):
                payload = each.directive.payload
                key = (receiver.incarnation, type(payload))
                delivery = self._deliveries.get(key)
                if delivery is None or delivery.id != each.id:
                    delivery = self._deliveries[key] = _Delivery(each.id, receiver.name)
                if delivery.is_due(now):
                    delivery.times, delivery.at = delivery.times + 1, now
                    if delivery.times == _OFTEN:
                        _LOGGER.warning(
                            "event=directive_not_acknowledged id=%d name=%s times=%d",
                            *(delivery.id, delivery.name, delivery.times),
                        )
                    messages.append(OutgoingMessage(receiver.routing_id, payload.message(each.id)))
        return messages

    def gauges(self) -> dict[str, float]:
        """Counts for a metrics line."""
        waiting = sum(not delivery.acknowledged for delivery in self._deliveries.values())
        return {
            "monitor_directives": float(self.issued),
            "monitor_directives_overruled": float(self.overruled),
            "monitor_directives_unacknowledged": float(waiting),
            "monitor_directives_refused": float(self.refused),
        }

    def _standing_for(self, receiver: Member) -> Iterable[_Standing]:
        """The directives in force for this process: of each kind the newest of the highest rank."""
        followed: dict[type, tuple[int, _Standing]] = {}
        for (_, kind), by_rank in self._standing.items():
            for rank, each in by_rank.items():
                if each.directive.is_for(receiver.role, receiver.name) and (
                    each.only is None or receiver.incarnation in each.only
                ):
                    best = followed.get(kind)
                    if best is None or (rank, each.id) > (best[0], best[1].id):
                        followed[kind] = rank, each
        return (each for _, each in followed.values())
