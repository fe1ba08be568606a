"""What a user may tell a running run, through its dashboard."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from typing import Final

from aclearn.control import (
    Directive,
    Payload,
    SaveCheckpoint,
    SetActors,
    SetChain,
    SetEntropyCost,
    SetLearningRate,
    StopRun,
)
from aclearn.wire import Action
from services.monitor.registry import Member

#: Each kind with its receiver and least values: what no run of this configuration refuses.
_LEAST: Final[tuple[tuple[str, Payload], ...]] = (
    ("monitor", StopRun("")),
    ("trainer-0", SaveCheckpoint()),
    ("supervisor", SetActors(1)),
    ("compressor", SetChain(0)),
    ("trainer-0", SetLearningRate(1e-4)),
    ("trainer-0", SetEntropyCost(0.0)),
)
_KINDS: Final = {type(payload).__name__: (to, type(payload)) for to, payload in _LEAST}


class Actions:
    """Checks a user's actions. Pure.

    Args:
        key: that each must have; "" refuses all.
        check: raises `ValueError` for a directive that the run's configuration does not allow.
        least_actors: the least number of actors that it allows.
    """

    def __init__(
        self, key: str, check: Callable[[Directive], None], *, least_actors: int = 1
    ) -> None:
        self._key, self._check, self._least_actors = key, check, least_actors

    def directive(self, action: Action, receivers: Sequence[Member]) -> Directive:
        """The directive of an action.

        Raises:
            ValueError: the action is refused; says why.
        """
        if not self._key or not hmac.compare_digest(action.key.encode(), self._key.encode()):
            raise ValueError("the key is not that of the run's monitor.json; read it again")
        if action.kind not in _KINDS:
            raise ValueError(f"{action.kind[:64]!r}: expected one of {', '.join(_KINDS)}")
        to, kind = _KINDS[action.kind]
        try:
            payload = kind.of(action.values)
        except ValueError as error:
            raise ValueError(f"{action.kind}: {error}") from None
        return self._checked(to, payload, receivers)

    def refusals(self, receivers: Sequence[Member]) -> dict[str, str]:
        """Kind → why no such action is possible now; "" where it is."""
        return {
            type(payload).__name__: self._refusal(
                to,
                SetActors(self._least_actors) if isinstance(payload, SetActors) else payload,
                receivers,
            )
            for to, payload in _LEAST
        }

    def _refusal(self, to: str, payload: Payload, receivers: Sequence[Member]) -> str:
        try:
            self._checked(to, payload, receivers)
        except ValueError as error:
            return str(error)
        return ""

    def _checked(self, to: str, payload: Payload, receivers: Sequence[Member]) -> Directive:
        directive = Directive(to, payload, once=isinstance(payload, SaveCheckpoint))
        self._check(directive)
        there = any(directive.is_for(member.role, member.name) for member in receivers)
        if to == "supervisor" and not there:
            raise ValueError(
                f"{type(payload).__name__}: the roles were started one by one, and nobody here "
                "starts more; start or end actors yourself"
            )
        if to != "monitor" and not there:
            raise ValueError(f"{type(payload).__name__}: {to} is not there now; try again later")
        return directive
