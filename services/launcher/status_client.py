"""The launcher's client of the monitor."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aclearn.control.directives import SetActors, StopRun, obey
from aclearn.wire import Client, DirectiveMessage, Status, StatusRequest
from services.role.requests import Requests, RetryPolicy

STATUS_EVERY_S = 1.0
_STATUS = "status"


class StatusClient:
    """Requests the run's status and its end from the monitor.

    Args:
        watch_key: looks at this process's key, as `RoleContext.watch_key` gives it.

    Attributes:
        asked: number of requests; a status has the number of its request in "answers".
        actors: number of actors that the monitor wants; None before its first directive.
    """

    def __init__(self, client: Client, watch_key: Callable[[], bool] = lambda: False) -> None:
        self._client, self._watch_key = client, watch_key
        # never marked as answered: repeated each second
        self._requests = Requests[str](RetryPolicy(answer_within_s=STATUS_EVERY_S))
        self._requests.add(_STATUS, StatusRequest(), float("-inf"))
        self.asked = 0
        self.actors: int | None = None

    def poll(self, now: float) -> dict[str, Any] | None:
        """The newest status if one came, else None; requests one when due."""
        newest = None
        self._watch_key()
        while (envelope := self._client.receive(0.0)) is not None:
            if isinstance(envelope.message, Status):
                newest = json.loads(envelope.message.json)
            elif isinstance(envelope.message, DirectiveMessage):
                self._client.send(obey(envelope.message, {SetActors: self._want}))
        for key, request in self._requests.due(now):
            sent = self._client.send(request, sequence=self.asked + 1)
            self._requests.tried(key, now, sent=sent)
            self.asked += sent
        return newest

    def stop(self, reason: str) -> bool:
        """Request the end of the run; False if the monitor cannot be reached."""
        # a monitor that was started again knows no supervisor yet
        self._client.send(StatusRequest(), sequence=self.asked, timeout_s=0.5)
        return self._client.send(StopRun(reason).message(), timeout_s=0.5)

    def _want(self, directive: SetActors) -> None:
        self.actors = directive.count
