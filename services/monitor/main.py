"""The monitor: knows the roles, keeps the books of the run, and says when it is over."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from aclearn.control import StopCondition
from aclearn.errors import LearningLost
from aclearn.launch import PARENT_PID_VARIABLE
from aclearn.launch.resources import FreeCores
from aclearn.metrics import FREE_CORES
from aclearn.telemetry import WaitMeter
from aclearn.views import PlainConsole
from aclearn.wire import (
    Heartbeat,
    Hello,
    Message,
    NumberRequest,
    Server,
    StatusRequest,
    StopRun,
)
from services.monitor.core import MonitorState, Phase
from services.monitor.files import MonitorFiles
from services.monitor.outgoing_message import OutgoingMessage
from services.monitor.registry import Member, Registry
from services.monitor.tuned_counts import TunedSettings
from services.monitor.tuner_plugin import Tuning
from services.monitor.tuner_setup import open_tuning, tuned_file
from services.roles import MONITOR, ROLES
from services.runtime.health import missing_role
from services.runtime.role_context import RoleContext
from services.runtime.run_clock import moment, started_seconds_ago
from services.runtime.run_end import closing_words

_LOGGER = logging.getLogger(__name__)

#: Silence after which a second process of a name replaces the first: seconds and heartbeats, the
#: longer.
_REPLACED_AFTER_S, _REPLACED_AFTER_HEARTBEATS = 2.0, 4
#: Seconds in which living roles find a monitor that was started again.
_RECONNECTED_WITHIN_S = 3.0
#: Longest wait for a message before the monitor looks at its clock.
_LOOK_EVERY_S = 0.05


def run_monitor(context: RoleContext, *, clock: Callable[[], float] = time.monotonic) -> int:
    """Run the monitor until the run is over; its last act is the summary. Its exit status.

    Raises:
        LearningLost: the summary could not be written, and no parent looks for it.
    """
    config, folder = context.config, context.folder
    if folder is None:
        raise ValueError("the monitor needs a run folder for its books")
    existed = folder.metrics_path.exists()
    server = context.serve_at(
        context.monitor, (NumberRequest, Hello, Heartbeat, StopRun, StatusRequest)
    )
    files = MonitorFiles(folder)
    begun = clock() - started_seconds_ago(files.last_written, moment(clock()))
    view = files.open_view(begun)
    last_line = files.last_line
    if last_line:
        _LOGGER.info(
            "event=run_continued folder=%s time_s=%s", folder.path, last_line.get("time_s")
        )
    goal = StopCondition.resumed(config.run, last_line)
    heartbeat_every_s = config.monitor.heartbeat_every_s
    registry = Registry(
        silent_after_s=config.monitor.silent_after_s,
        replaced_after_s=max(_REPLACED_AFTER_S, _REPLACED_AFTER_HEARTBEATS * heartbeat_every_s),
        first_numbers={
            spec.name: spec.most_processes(config)
            for spec in ROLES.values()
            if PARENT_PID_VARIABLE in os.environ
        },
    )
    book = MonitorState(
        registry,
        view,
        goal,
        numbers_from=clock() + heartbeat_every_s + _RECONNECTED_WITHIN_S if existed else 0.0,
    )
    memory = TunedSettings(tuned_file(config))
    time_base_s = float(last_line.get("time_s") or 0.0)
    tuning = open_tuning(
        config,
        folder,
        memory,
        clock=clock,
        time_s=lambda now: time_base_s + now - begun,
        show=files.tensorboard.write_at,
    )
    needs = MONITOR.needs(config)
    meter = WaitMeter()
    cores = FreeCores()
    next_line = clock()  # at once: who looks at a run that starts sees that it does

    def make_line() -> dict[str, Any]:
        view.observe_own_waits(MONITOR.name, meter.seconds(), clock())
        line = book.make_line(clock())
        line["monitor_refused_messages"] = sum(server.refused.values()) + book.refused_heartbeats
        line["monitor_refused_connections"] = server.refused_connections
        free = cores.look()
        here = all(m.host == socket.gethostname() for m in registry.members)
        if free is not None and here:  # who is elsewhere has other cores
            line[FREE_CORES] = free
        if tuning is not None:
            line |= {**tuning.gauges(), "tuner_file_warnings": memory.warnings}
        return line

    # under `aclearn train` the parent shows the run; else nobody else does
    by_hand = PARENT_PID_VARIABLE not in os.environ
    goals = config.run.bounds()
    console = PlainConsole(goals, name=context.run, stream=sys.stdout) if by_hand else None
    while book.phase is not Phase.OVER:
        with meter.waiting("messages"):
            received = server.receive(_LOOK_EVERY_S)
        for address, envelope in received:
            now = clock()
            member = registry.get(envelope.sender)
            refused = book.refused_heartbeats
            _send(server, book.take(address, envelope, now))
            if book.refused_heartbeats > refused:
                continue
            if tuning is not None and book.phase is Phase.RUNNING and member is not None:
                _tune(tuning, member, envelope.message, book, registry, now)
        now = clock()
        if tuning is not None and book.phase is Phase.RUNNING:
            _send(server, tuning.messages(registry.members, now))
        if context.stop:
            if context.contained:
                book.leave(str(context.stop.reason))
            else:
                book.stop(str(context.stop.reason), now)
        before = book.phase
        _send(server, book.observe_time(now))
        if before is not book.phase is Phase.STOPPING_ALL:
            next_line = now  # the mean that the last checkpoint may be the best for is in a line
        if context.health is not None:
            context.health.say(
                lambda: missing_role(needs, {member.role for member in registry.members})
            )
        if now >= next_line:
            next_line = now + config.run.metrics_every_s
            line = make_line()
            for text in files.write_line(line, view):
                book.note(text)
            if console is not None:
                console.update(line, [])
    written = files.close(make_line(), view, goal, book.reason or "stopped")
    if tuning is not None:
        tuning.close()
    server.close(linger_s=0.5)
    if by_hand and not written:
        raise LearningLost(
            f"the run ended and {folder.summary_path} could not be written, see "
            "event=summary_not_written above; free space and start the roles again to go on"
        )
    if by_hand and (summary := folder.read_summary()) is not None:
        print(closing_words(config, summary), flush=True)
    return 0


def _tune(
    tuning: Tuning,
    member: Member,
    message: Message,
    book: MonitorState,
    registry: Registry,
    now: float,
) -> None:
    """Let the tuner read a heartbeat; what it wants of the parent is in the book's status."""
    if isinstance(message, Heartbeat):
        tuning.take(member, message, registry.members, book.line, now)
    book.actors_wanted = tuning.actors_wanted
    while tuning.notes:
        book.note(tuning.notes.popleft())


def _send(server: Server, messages: list[OutgoingMessage]) -> None:
    for message in messages:
        server.send(message.address, message.message)
