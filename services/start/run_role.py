"""Runs one role in this process, under a number from --name or from the monitor."""

from __future__ import annotations

import logging
import os
import pkgutil
import re
import secrets
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import NoReturn

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.extensions import search_modules_in
from aclearn.launch import (
    PARENT_PID_VARIABLE,
    RESTARTS_VARIABLE,
    StopFlag,
    allow_many_connections,
    lower_priority,
)
from aclearn.launch.resources import keep_freed_memory
from aclearn.wire import ErrorReply, MembershipReply, Number, NumberRequest
from services.role.context import RoleContext, RunEnv, Start
from services.role.health import WAITS_FOR_MONITOR, open_health
from services.role.loop import run_to_end
from services.role.monitor_client import (
    ASKING,
    NumberTaken,
    Sender,
    UnansweredWarning,
    exit_status,
)
from services.role.requests import Requests, say_refusal
from services.roles import MONITOR, MOST_NUMBER, RoleSpec
from services.start.folder import role_folder
from services.start.preflight import check_role
from services.start.temporary_directory import remove_if_orphaned

_LOGGER = logging.getLogger(__name__)

_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")
#: Longest wait for the monitor's answer before signals are checked.
_LOOK_EVERY_S = 0.1


def end_process(status: int) -> NoReturn:
    """End the process of a role that has closed its sockets and files.

    The interpreter's own exit destroys torch's objects one by one: up to a second on a busy core,
    of the ten seconds for the end of a run.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run_role(
    spec: RoleSpec,
    name: str | None,
    config: Config,
    monitor: str,
    stop: StopFlag,
    *,
    contained: bool = False,
    forced: bool = False,
    note: str = "",
) -> int:
    """Run one role to its end; returns its exit status. Without a name the monitor gives a number.

    A monitor's status is always 0, even after a signal: it has ended the run.

    Raises:
        ConfigError: the name is not the role and a number.
    """
    number = None if name is None else number_in(spec, name, config)
    if spec.fixed(config) == 1:
        number = 0
    config = config.named_by_seed()
    search_modules_in(config.run.pythonpath)
    restarts = int(os.environ.get(RESTARTS_VARIABLE, "0"))
    supervised = PARENT_PID_VARIABLE in os.environ
    allow_many_connections()
    while True:
        health = open_health(config, spec, name or spec.name, restarts)
        start = Start(
            restarts if supervised else secrets.randbits(32),
            health,
            note=note,
            contained=contained,
            number_given=number is None,
            forced=forced,
        )
        context = RoleContext(spec.name, number or 0, config, RunEnv(monitor), stop, start=start)
        with health or nullcontext():
            try:
                return _run(context, spec)
            except NumberTaken as taken:
                # start again: seeds, environments and sockets depend on the number
                _LOGGER.warning("event=number_taken reason=%r", str(taken))
            finally:
                context.close()
                remove_if_orphaned(monitor)


def _run(context: RoleContext, spec: RoleSpec) -> int:
    context.run.env_spec = check_role(context)
    if context.stop and spec.needs_environment:  # the monitor's answer has the reason
        return exit_status(context.stop)
    if context.start.number_given:
        try:
            context.index = ask_number(context)
        except NoNumber as none:
            return none.exit_status
    # a process that writes nothing may be on a machine without the folder
    if spec.needs_folder and context.index == 0:
        context.run.folder = role_folder(context.config, spec.name)
    if context.start.health is not None:
        context.start.health.name = context.name
    if spec is not MONITOR:  # the monitor needs little memory
        keep_freed_memory()
    make = pkgutil.resolve_name(spec.entry_point)
    lower_priority(spec.nice(context.config))
    return run_to_end(make(context))


def number_in(spec: RoleSpec, name: str, config: Config) -> int:
    """The number in a name from --name.

    Raises:
        ConfigError: the name is not the role, a hyphen and a number of at most six digits, or the
            number is that of no process of a role with an exact number of them.
    """
    role = spec.name
    prefix, _, number = name.rpartition("-")
    if prefix != role or not _NUMBER.fullmatch(number):
        raise ConfigError(
            f"--name: {name!r} is no name of role {role}; expected {role}- and a number from "
            f"0 to {MOST_NUMBER}, e.g. {role}-3. Without --name the monitor gives a number"
        )
    if (most := spec.fixed(config)) is not None and int(number) >= most:
        if most == 1:
            raise ConfigError(
                f"--name: {name!r}: a run has one {role}; expected {role}-0, which it "
                "gets without --name too"
            )
        raise ConfigError(
            f"--name: {name!r}: this run has {most} processes of role {role} "
            f"({spec.processes_key}); expected {role}-0 to {role}-{most - 1}, or no --name"
        )
    return int(number)


class NoNumber(Exception):
    """This process gets no number: it was asked to stop, refused, or the run ends."""

    def __init__(self, exit_status: int) -> None:
        super().__init__(f"exit status {exit_status}")
        self.exit_status = exit_status


def ask_number(context: RoleContext, *, clock: Callable[[], float] = time.monotonic) -> int:
    """The number that the monitor hands out to this process.

    Waits for the monitor without a limit; the log mentions it after five seconds.

    Raises:
        NoNumber: the process is to end, with that exit status.
    """
    client = context.connect(context.run.monitor)
    send, watch_key = Sender(client, clock).send, context.watch_key(client)
    unanswered, refusals = UnansweredWarning(), set[str]()
    requests = Requests[str](ASKING)
    requests.add(context.role, NumberRequest(context.role), clock())
    try:
        while not context.stop:
            now = clock()
            watch_key()
            for key, request in requests.due(now):
                requests.tried(key, now, sent=send(request))
            unanswered.look(now)
            if context.start.health is not None:
                context.start.health.say(lambda: "a number" if refusals else WAITS_FOR_MONITOR)
            envelope = client.receive(_LOOK_EVERY_S)
            message = None if envelope is None else envelope.message
            if isinstance(message, Number):
                _LOGGER.info("event=number_given name=%s-%d", context.role, message.number)
                return message.number
            if isinstance(message, MembershipReply):
                if message.action in ("leave", "stop"):
                    _LOGGER.info("event=told_to_stop reason=%r", message.reason)
                    over = message.action == "stop"
                    raise NoNumber(exit_status(context.stop, run_is_over=over, refused=not over))
                unanswered.answered()
                if message.reason not in refusals:
                    refusals.add(message.reason)
                    _LOGGER.warning("event=no_number_is_free reason=%r", message.reason)
            if isinstance(message, ErrorReply):
                say_refusal(refusals, MONITOR.name, message)
        raise NoNumber(exit_status(context.stop))
    finally:
        client.close()
