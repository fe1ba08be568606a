"""Directives to the roles: numbered, and sent again until acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    times: int = 0
    at: float = float("-inf")
    acknowledged: bool = False

    def is_due(self, now: float) -> bool:
        wait_s = _AGAIN_AFTER_S if self.times < _OFTEN else _RARELY_S
        return not self.acknowledged and not 0.0 <= now - self.at < wait_s


class _Waiting(NamedTuple):
    """What is sent again until it is acknowledged."""

    receiver: Member
    delivery: _Delivery
    payload: Payload


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
    #: By incarnation of each receiver, then by kind of payload.
    _deliveries: dict[str, dict[type, _Delivery]] = field(default_factory=dict)
    _receivers: tuple[Member, ...] = ()
    #: What stands and is not acknowledged, by incarnation and kind of payload. It is made again
    #: once what stands, or who receives it, has changed.
    _waiting: dict[tuple[str, type], _Waiting] = field(default_factory=dict)
    _changed: bool = False

    def meet(self, receivers: tuple[Member, ...]) -> None:
        """Replace the receivers by the present members; deliveries to others are dropped.

        The same object means the same members: then nothing is compared.
        """
        if receivers is not self._receivers:
            self._receivers, self._changed = receivers, True
            there = [receiver.incarnation for receiver in receivers]
            self._deliveries = {each: self._deliveries.get(each, {}) for each in there}
        for key, by_rank in list(self._standing.items()):
            for rank, standing in list(by_rank.items()):
                if standing.only is None:
                    continue
                left = standing.only & self._deliveries.keys()
                if all(self._has(incarnation, key[1], standing.id) for incarnation in left):
                    del by_rank[rank]
                    self._changed = True
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
        before = self._standing.get(key, {}).get(rank)
        if before is not None and (
            (before.directive.payload, before.directive.once) == (payload, directive.once)
        ):
            return
        only: set[str] | None = None
        if directive.once:
            only = {r.incarnation for r in self._receivers if directive.is_for(r.role, r.name)}
            if not only:
                return
        by_rank = self._standing.setdefault(key, {})
        self._done.pop((*key, rank), None)
        self.issued, self._changed = self.issued + 1, True
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
            self._changed = True
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
        for kind, delivery in self._deliveries.get(incarnation, {}).items():
            if delivery.id == directive_id:
                if delivery.acknowledged:
                    return False
                self.refused += refused
                delivery.acknowledged = True
                self._waiting.pop((incarnation, kind), None)
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
            self._changed = True
            if each.before is not None:
                self.issued += 1
                by_rank[USER_RANK] = _Standing(self.issued, each.before, each.by)
            if not by_rank:
                del self._standing[key]
            return each.directive.payload
        return None

    def messages(self, now: float) -> list[OutgoingMessage]:
        """The unacknowledged directives that are due at `now`, in seconds."""
        if self._changed:
            self._changed, self._waiting = False, dict(self._match())
        messages = []
        for receiver, delivery, payload in self._waiting.values():
            if delivery.is_due(now):
                delivery.times, delivery.at = delivery.times + 1, now
                if delivery.times == _OFTEN:
                    _LOGGER.warning(
                        "event=directive_not_acknowledged id=%d name=%s times=%d",
                        *(delivery.id, receiver.name, delivery.times),
                    )
                message = payload.message(delivery.id)
                messages.append(OutgoingMessage(receiver.routing_id, message))
        return messages

    def gauges(self) -> dict[str, float]:
        """Counts for a metrics line."""
        waiting = sum(
            not delivery.acknowledged
            for own in self._deliveries.values()
            for delivery in own.values()
        )
        return {
            "monitor_directives": float(self.issued),
            "monitor_directives_overruled": float(self.overruled),
            "monitor_directives_unacknowledged": float(waiting),
            "monitor_directives_refused": float(self.refused),
        }

    def _match(self) -> Iterator[tuple[tuple[str, type], _Waiting]]:
        """What each receiver has not acknowledged of what is in force for it."""
        for receiver in self._receivers if self._standing else ():
            own = self._deliveries[receiver.incarnation]
            for each in self._standing_for(receiver):
                payload = each.directive.payload
                delivery = own.get(type(payload))
                if delivery is None or delivery.id != each.id:
                    delivery = own[type(payload)] = _Delivery(each.id)
                if not delivery.acknowledged:
                    key = receiver.incarnation, type(payload)
                    yield key, _Waiting(receiver, delivery, payload)

    def _has(self, incarnation: str, kind: type, directive_id: int) -> bool:
        """Whether a receiver has acknowledged this directive."""
        delivery = self._deliveries[incarnation].get(kind)
        return delivery is not None and delivery.id == directive_id and delivery.acknowledged

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
