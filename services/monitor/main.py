"""The monitor's process: a loop that receives, calls the pure steps, sends, and writes."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from aclearn.config import Config
from aclearn.control import MonitorPlugin, StopCondition
from aclearn.control.tuner.plugin import TunerPlugin, most_counts
from aclearn.errors import LearningLost
from aclearn.launch import PARENT_PID_VARIABLE
from aclearn.launch.resources import FreeCores
from aclearn.metrics import FREE_CORES
from aclearn.runs import RunFolder
from aclearn.telemetry import WaitMeter
from aclearn.views import PlainConsole
from aclearn.wire import (
    DirectiveAck,
    Heartbeat,
    Hello,
    NumberRequest,
    Server,
    StatusRequest,
    StopRun,
)
from services.monitor.core import MonitorState
from services.monitor.ending import Phase
from services.monitor.files import MonitorFiles
from services.monitor.plugins import TUNER, Plugins, load_plugins
from services.monitor.registry import OutgoingMessage, Registry
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
        ConfigError: a plug-in cannot be loaded.
        LearningLost: the summary could not be written, and no parent looks for it.
    """
    config, folder = context.config, context.folder
    if folder is None:
        raise ValueError("the monitor needs a run folder to write into")
    numbers_from = 0.0
    if folder.metrics_path.exists():
        numbers_from = clock() + config.monitor.heartbeat_every_s + _RECONNECTED_WITHIN_S
    accepts = (NumberRequest, Hello, Heartbeat, DirectiveAck, StopRun, StatusRequest)
    server = context.serve_at(context.monitor, accepts)
    files = MonitorFiles(folder)
    plugins = Plugins(_open_plugins(config, folder, files))
    metrics = files.open_metrics(clock() - started_seconds_ago(files.last_written, moment(clock())))
    if last_line := files.last_line:
        _LOGGER.info(
            "event=run_continued folder=%s time_s=%s", folder.path, last_line.get("time_s")
        )
    goal = StopCondition.resumed(config.run, last_line)
    registry = _open_registry(config)
    state = MonitorState(
        registry,
        metrics,
        goal,
        plugins=plugins,
        expected={spec.name: spec.processes(config) for spec in ROLES.values()},
        numbers_from=numbers_from,
    )
    needs = MONITOR.needs(config)
    meter, cores = WaitMeter(), FreeCores()
    next_line = clock()  # at once: it shows that the run has started

    def make_line() -> dict[str, Any]:
        metrics.observe_own_waits(MONITOR.name, meter.seconds(), clock())
        line = state.make_line(clock())
        line["monitor_refused_messages"] = sum(server.refused.values()) + state.refused_heartbeats
        line["monitor_refused_connections"] = server.refused_connections
        free = cores.look()
        here = all(m.host == socket.gethostname() for m in registry.members)
        if free is not None and here:  # other machines have other cores
            line[FREE_CORES] = free
        return line

    # under `aclearn train` the parent shows the run; else the monitor does
    by_hand = PARENT_PID_VARIABLE not in os.environ
    goals = config.run.bounds()
    console = PlainConsole(goals, name=context.run, stream=sys.stdout) if by_hand else None
    while state.phase is not Phase.OVER:
        with meter.waiting("messages"):
            received = server.receive(_LOOK_EVERY_S)
        for routing_id, envelope in received:
            _send(server, state.take(routing_id, envelope, clock()))
        now = clock()
        if context.stop:
            if context.contained:
                state.leave(str(context.stop.reason))
            else:
                state.stop(str(context.stop.reason), now)
        before = state.phase
        _send(server, state.observe_time(now))
        if before is not state.phase is Phase.STOPPING_ALL:
            next_line = now  # the mean that the last checkpoint may be the best for is in a line
        if context.health is not None:
            context.health.say(
                lambda: missing_role(needs, {member.role for member in registry.members})
            )
        if now >= next_line:
            next_line = now + config.run.metrics_every_s
            line = make_line()
            for text in files.write_line(line, metrics):
                state.report.note(text)
            if console is not None:
                console.update(line, [])
    written = files.close(make_line(), metrics, goal, state.reason or "stopped")
    plugins.close()
    server.close(linger_s=0.5)
    if by_hand and not written:
        raise LearningLost(
            f"the run ended and {folder.summary_path} could not be written, see "
            "event=summary_not_written above; free space and start the roles again to go on"
        )
    if by_hand and (summary := folder.read_summary()) is not None:
        print(closing_words(config, summary), flush=True)
    return 0


def _open_plugins(
    config: Config, folder: RunFolder, files: MonitorFiles
) -> dict[str, MonitorPlugin]:
    """The tuner, where it is on, then those of the configuration, which may overrule it."""
    workers_of = {spec.tuned_workers: spec.name for spec in ROLES.values() if spec.tuned_workers}
    plugins: dict[str, MonitorPlugin] = {}
    if most_counts(config):
        show = files.tensorboard.write_at
        plugins[TUNER] = TunerPlugin(config, folder.path, workers_of, show=show)
    return plugins | load_plugins(config.monitor.plugins)


def _open_registry(config: Config) -> Registry:
    replaced_after_s = _REPLACED_AFTER_HEARTBEATS * config.monitor.heartbeat_every_s
    return Registry(
        silent_after_s=config.monitor.silent_after_s,
        replaced_after_s=max(_REPLACED_AFTER_S, replaced_after_s),
        first_numbers={
            spec.name: spec.most_processes(config)
            for spec in ROLES.values()
            if PARENT_PID_VARIABLE in os.environ
        },
    )


def _send(server: Server, messages: list[OutgoingMessage]) -> None:
    for message in messages:
        server.send(message.routing_id, message.message)
