"""Directives to the roles: numbered, and sent again until acknowledged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from aclearn.control import Directive
from aclearn.wire import SaveBest, SetActors, SetChain, SetMix, SetWorkers, StopRole
from services.monitor.registry import Member, OutgoingMessage

_LOGGER = logging.getLogger(__name__)

#: Payloads that roles receive.
RolePayload = SetWorkers | SetActors | SetChain | SetMix | SaveBest | StopRole
#: Rank of the monitor's own directives, above every plug-in's.
MONITOR_RANK = 1_000_000
#: Seconds before an unacknowledged directive is sent again: the first six times, then.
_AGAIN_AFTER_S, _OFTEN, _RARELY_S = 0.5, 6, 8.0

#: Directives about the compression, which the next monitor continues with.
_KEPT: dict[str, type[SetChain] | type[SetMix]] = {"SetChain": SetChain, "SetMix": SetMix}

#: Receiver and kind of payload.
_Key = tuple[str, type]


class _Standing(NamedTuple):
    """A numbered directive that is in force."""

    payload: RolePayload
    #: Name of the plug-in that gave it.
    by: str
    #: Incarnations that receive it; None for all, including later ones.
    only: set[str] | None


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
        overruled: number of directives so far that a higher rank contradicted.
    """

    issued: int = 0
    overruled: int = 0
    _standing: dict[_Key, dict[int, _Standing]] = field(default_factory=dict)  # by rank
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
                if standing.only is not None and all(
                    (incarnation, standing.payload.id) in have
                    for incarnation in standing.only & there
                ):
                    del by_rank[rank]
            if not by_rank:
                del self._standing[key]

    def issue(self, directive: Directive, *, by: str, rank: int = MONITOR_RANK) -> None:
        """Put a directive in force; repeating it has no effect.

        Args:
            directive: the receiver and the message.
            by: name of the plug-in, for the log.
            rank: of the plug-in; the highest wins.
        """
        payload = directive.payload
        assert isinstance(payload, RolePayload)  # the monitor handles its own payloads
        by_rank = self._standing.setdefault((directive.to, type(payload)), {})
        before = by_rank.get(rank)
        if before is not None and replace(payload, id=before.payload.id) == before.payload:
            return
        self.issued += 1
        payload = replace(payload, id=self.issued)
        receivers = (r.incarnation for r in self._receivers if _is_for(directive.to, r))
        by_rank[rank] = _Standing(payload, by, set(receivers) if directive.once else None)
        _LOGGER.info(
            "event=directive by=%s to=%s payload=%r cause=%r",
            *(by, directive.to, payload, dict(directive.cause)),
        )
        followed = by_rank[max(by_rank)].payload
        if replace(followed, id=payload.id) != payload:
            self.overruled += 1
            _LOGGER.warning(
                "event=directive_overruled by=%s to=%s payload=%r followed=%r",
                *(by, directive.to, payload, followed),
            )

    def state(self) -> dict[str, Any]:
        """The rungs and mixes in force, for the next monitor; JSON-able."""
        standing = [
            {"by": each.by, "to": to, "kind": kind.__name__, "payload": asdict(each.payload)}
            for (to, kind), by_rank in self._standing.items()
            for each in by_rank.values()
            if kind.__name__ in _KEPT and each.only is None
        ]
        return {"issued": self.issued, "standing": standing}

    def restore(
        self, state: Mapping[str, Any], rank_of: Callable[[str, Directive], int | None]
    ) -> None:
        """Continue from the `state` of an earlier monitor, as far as it is valid.

        Args:
            state: of that monitor; {} for a new run.
            rank_of: rank of the named plug-in; None where it is gone, or cannot give the directive.
        """
        try:
            self.issued = int(state.get("issued", 0))
            for each in state.get("standing", ()):
                payload = _KEPT[each["kind"]](**each["payload"])
                rank = rank_of(each["by"], Directive(each["to"], payload))
                if rank is not None:
                    by_rank = self._standing.setdefault((each["to"], type(payload)), {})
                    by_rank[rank] = _Standing(payload, each["by"], None)
        except (ValueError, TypeError, KeyError) as error:
            _LOGGER.error("event=directives_not_restored reason=%r", repr(error))

    def acknowledge(self, incarnation: str, directive_id: int) -> None:
        """Note a receiver's acknowledgement; those of unknown directives are ignored."""
        for (receiver, _), delivery in self._deliveries.items():
            if (receiver, delivery.id) == (incarnation, directive_id):
                delivery.acknowledged = True

    def messages(self, now: float) -> list[OutgoingMessage]:
        """The unacknowledged directives that are due at `now`, in seconds."""
        messages = []
        for receiver in self._receivers:
            for payload in self._standing_for(receiver):
                key = (receiver.incarnation, type(payload))
                delivery = self._deliveries.get(key)
                if delivery is None or delivery.id != payload.id:
                    delivery = self._deliveries[key] = _Delivery(payload.id, receiver.name)
                if delivery.is_due(now):
                    delivery.times, delivery.at = delivery.times + 1, now
                    if delivery.times == _OFTEN:
                        _LOGGER.warning(
                            "event=directive_not_acknowledged id=%d name=%s times=%d",
                            *(delivery.id, delivery.name, delivery.times),
                        )
                    messages.append(OutgoingMessage(receiver.routing_id, payload))
        return messages

    def gauges(self) -> dict[str, float]:
        """Counts for a metrics line."""
        waiting = sum(not delivery.acknowledged for delivery in self._deliveries.values())
        return {
            "monitor_directives": float(self.issued),
            "monitor_directives_overruled": float(self.overruled),
            "monitor_directives_unacknowledged": float(waiting),
        }

    def _standing_for(self, receiver: Member) -> Iterator[RolePayload]:
        """The directives in force for this process: of each kind the newest of the highest rank."""
        followed: dict[type, tuple[int, int, RolePayload]] = {}
        for (to, kind), by_rank in self._standing.items():
            for rank, (payload, _, only) in by_rank.items():
                if _is_for(to, receiver) and (only is None or receiver.incarnation in only):
                    best = followed.get(kind)
                    if best is None or (rank, payload.id) > best[:2]:
                        followed[kind] = (rank, payload.id, payload)
        return (payload for _, _, payload in followed.values())


def _is_for(to: str, receiver: Member) -> bool:
    return to in (receiver.role, receiver.name) or (to == "all" and receiver.role != "supervisor")
