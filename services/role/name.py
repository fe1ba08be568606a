"""The name of a role: its role and a number, from --name or from the monitor."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Final

from aclearn.errors import ConfigError
from aclearn.wire import ErrorReply, MembershipReply, Number, NumberRequest
from services.role.context import RoleContext
from services.role.monitor_client import ASKING, UnansweredWarning
from services.role.refusal_log import say_refusal
from services.role.requests import Requests
from services.roles import MONITOR, RoleSpec

_LOGGER = logging.getLogger(__name__)

#: Largest number of a name: one message lists all names.
MOST_NUMBER: Final = 999_999
_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")
#: Longest wait for the monitor's answer before signals are checked.
_LOOK_EVERY_S = 0.1


def number_in(spec: RoleSpec, name: str) -> int:
    """The number in a name from --name.

    Raises:
        ConfigError: the name is not the role, a hyphen and a number of at most six digits, or the
            number is not 0 for a role with one process.
    """
    role = spec.name
    prefix, _, number = name.rpartition("-")
    if prefix != role or not _NUMBER.fullmatch(number):
        raise ConfigError(
            f"--name: {name!r} is no name of role {role}; expected {role}- and a number from "
            f"0 to {MOST_NUMBER}, e.g. {role}-3. Without --name the monitor gives a number"
        )
    if spec.single and number != "0":
        raise ConfigError(
            f"--name: {name!r}: a run has one {role}; expected {role}-0, which it "
            "gets without --name too"
        )
    return int(number)


def ask_number(context: RoleContext, *, clock: Callable[[], float] = time.monotonic) -> int | None:
    """The number that the monitor hands out to this process.

    Waits for the monitor without a limit; the log mentions it after five seconds.

    Returns:
        The number; None if the process was asked to stop meanwhile.
    """
    client = context.connect(context.run.monitor)
    unanswered, refusals = UnansweredWarning(), set[str]()
    requests = Requests[str](ASKING)
    requests.add(context.role, NumberRequest(context.role), clock())
    try:
        while not context.stop:
            now = clock()
            for key, request in requests.due(now):
                requests.tried(key, now, sent=client.send(request))
            unanswered.look(now)
            if context.start.health is not None:
                context.start.health.say(lambda: "the monitor")
            envelope = client.receive(_LOOK_EVERY_S)
            message = None if envelope is None else envelope.message
            if isinstance(message, Number):
                _LOGGER.info("event=number_given name=%s-%d", context.role, message.number)
                return message.number
            if isinstance(message, MembershipReply) and message.action == "leave":
                _LOGGER.info("event=told_to_stop reason=%r", message.reason)
                return None
            if isinstance(message, ErrorReply):
                say_refusal(refusals, MONITOR.name, message)
        return None
    finally:
        client.close()
