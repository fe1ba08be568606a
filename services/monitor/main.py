"""The monitor's loop: receive, step, send, write."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
import time
from pathlib import Path
from typing import Any

from aclearn.config import Config
from aclearn.control import MonitorPlugin, StopCondition
from aclearn.control.strategies.load import open_strategies
from aclearn.control.tuner.plugin import TunerPlugin, most_counts
from aclearn.errors import LearningLost
from aclearn.metrics import FREE_CORES
from aclearn.metrics.indicators import IndicatorSet, load_indicators
from aclearn.metrics.names import HEARTBEAT_EVERY_S, RESIDENT_ENVS
from aclearn.metrics.sinks import SinkRun, SinkSet, load_sinks
from aclearn.runs import RunFolder
from aclearn.telemetry import WaitMeter
from aclearn.telemetry.cores import FreeCores
from aclearn.types import BYTES_OF_AN_ACTOR, CLOSED_REPORTED
from aclearn.views import PlainConsole
from aclearn.wire import Server, most_connections
from services.ending.words import closing_words
from services.monitor.address_file import MonitorAddress
from services.monitor.core import MonitorState
from services.monitor.ending import Phase
from services.monitor.files import MonitorFiles
from services.monitor.judge import Judge
from services.monitor.keys import MonitorKeys
from services.monitor.plugins import TUNER, Plugins, load_plugins
from services.monitor.registry import OutgoingMessage, Registry
from services.monitor.run_clock import moment, started_seconds_ago
from services.role.context import RoleContext
from services.role.health import missing_role
from services.roles import MONITOR, ROLES, roles_of
from services.wiring import ENDPOINTS

_LOGGER = logging.getLogger(__name__)

#: Connections for those that are no members: users, and processes that are refused.
_OTHER_CONNECTIONS = 64
#: Seconds in which living roles reconnect to a restarted monitor.
_RECONNECTED_WITHIN_S = 3.0


class MonitorRole:
    """Runs the monitor until the run is over; the last step writes the summary.

    Raises `ConfigError` if a plug-in, an indicator or a sink cannot be loaded.
    """

    exit_status = 0

    def __init__(self, context: RoleContext) -> None:
        config, folder, clock = context.config, context.run.folder, context.clocks.decisions
        if folder is None:
            raise ValueError("the monitor needs a run folder")
        self._context, self._folder, self._clock = context, folder, clock
        follows = folder.metrics_path.exists()  # another monitor of this run
        self._server = context.serve_at(
            context.run.monitor,
            ENDPOINTS["monitor"].accepts,
            array_bytes=BYTES_OF_AN_ACTOR
            * (config.monitor.max_processes + CLOSED_REPORTED)
            * len(config.policy_names()),
        )
        self._keys = MonitorKeys.open(context, self._server)
        own = load_indicators(config.monitor.indicators)
        self._sinks = SinkSet(
            load_sinks(config.metrics, config.network.bind_host),
            timeout_s=config.metrics.sink_timeout_s,
        )
        figures = [name for each in own for name in each.names]
        self._files = files = MonitorFiles(folder, figures, self._sinks)
        self._plugins = Plugins(_open_plugins(config, folder, files), config)
        numbers_from = 0.0
        if follows:  # until all who live have said their names
            every_s = files.last_line.get(HEARTBEAT_EVERY_S) or config.monitor.heartbeat_every_s
            numbers_from = clock() + float(every_s) + _RECONNECTED_WITHIN_S
        began_ago_s = started_seconds_ago(files.last_written, moment(time.monotonic()))
        judged = config.judged_policies()
        self._metrics = files.open_metrics(
            context.clocks.wall() - began_ago_s, tuple(config.policies), judged
        )
        if last_line := files.last_line:
            _LOGGER.info(
                "event=run_continued folder=%s time_s=%s", folder.path, last_line.get("time_s")
            )
        self._goal = StopCondition.resumed(config, last_line)
        key = "" if context.inline else secrets.token_urlsafe(24)
        self._registry = _open_registry(context)
        self.state = MonitorState(
            self._registry,
            self._metrics,
            self._goal,
            self._plugins,
            indicators=IndicatorSet(config.monitor.return_window_s, own),
            expected={spec.name: spec.processes(config) for spec in ROLES.values()},
            fixed={
                spec.name: most
                for spec in ROLES.values()
                if (most := spec.fixed(config)) is not None
            },
            numbers_from=numbers_from,
            wall_clock=context.clocks.wall,
            figures=self._figures,
            frames_per_step=config.env.atari.frame_skip if config.env.is_atari else None,
            directives=files.read_directives(),
            digests=context.digests,
            judge=Judge(config, last_line) if config.evaluator.enabled else None,
            offers_best=config.judge == "training",
            policies=tuple(config.policies),
            judged=judged if config.policies else (),
            actions_key=key,
            on_action=lambda action, refusal: files.write_action(self.state.line, action, refusal),
        )
        if key:
            keys_dir = config.network.keys_dir
            files.write_address(
                MonitorAddress(
                    context.run_name,
                    context.run.monitor,
                    socket.gethostname(),
                    os.getpid(),
                    str(Path(keys_dir).absolute()) if keys_dir else None,
                    key,
                )
            )
        if self._keys is not None:
            self.state.allow(self._keys.allowed)
        self._directives = self.state.directives["standing"]
        self._meter, self._cores = WaitMeter(), FreeCores()
        self._next_line = clock()  # immediately, to show that the run has started
        # under `aclearn train` the parent shows the run; otherwise the monitor does
        self._console = (
            PlainConsole(config.run.bounds(), name=context.run_name, stream=sys.stdout)
            if context.start.by_hand
            else None
        )
        settings = config.model_dump(by_alias=True)
        self._sinks.open(SinkRun(folder.name, folder.path, settings, resumed=bool(last_line)))

    def step(self, timeout_s: float) -> bool:
        """Handle messages, send due ones, write the next line.

        Raises:
            LearningLost: the summary could not be written, and no parent reports that.
        """
        server, state, config = self._server, self.state, self._context.config
        with self._meter.waiting("messages"):
            received = server.receive(timeout_s)
        for routing_id, envelope in received:
            _send(server, state.take(routing_id, envelope, self._clock()))
        now = self._clock()
        if self._keys is not None:
            if self._keys.look():
                state.allow(self._keys.allowed)
            for text in self._keys.refusals():
                state.report.event(text)
        if stop := self._context.stop:
            if self._context.start.contained:
                state.leave(str(stop.reason))
            else:
                state.stop(str(stop.reason), now, in_haste=True)
        before = state.phase
        messages = state.observe_time(now)
        if (directives := state.directives)["standing"] != self._directives:
            # before they are sent: the next monitor must not set them back
            self._files.write_directives(directives)
            self._directives = directives["standing"]
        _send(server, messages)
        if before is not state.phase is Phase.STOPPING_ALL:
            # the last checkpoint needs the newest mean, to decide whether it is the best
            self._next_line = now
        if self._context.start.health is not None:
            self._context.start.health.say(
                lambda: missing_role(MONITOR.needs(config), self._registry.roles)
            )
        if now >= self._next_line:
            self._next_line = now + config.run.metrics_every_s
            line = self._make_line()
            for text in self._files.write_line(line, self._metrics):
                state.report.note(text)
            if self._console is not None:
                self._console.update(line, [])
        if state.phase is Phase.OVER:
            self._end()
        return state.phase is not Phase.OVER

    def close(self) -> None:
        """Close the files and the server; answers have half a second to leave."""
        self._files.remove_address()
        self._files.close()
        self._server.close(linger_s=0.5)

    def _make_line(self) -> dict[str, Any]:
        wall_now = self._context.clocks.wall()
        self._metrics.observe_own_waits(MONITOR.name, self._meter.seconds(), wall_now)
        return self.state.make_line(self._clock())

    def _figures(self) -> dict[str, float | None]:
        """The monitor's own figures for a metrics line."""
        server, state = self._server, self.state
        refused = server.refused.total() + state.refused + state.not_allowed
        figures: dict[str, float | None] = {
            RESIDENT_ENVS: self._context.config.resident.envs,
            HEARTBEAT_EVERY_S: self._registry.every_s(),
            "monitor_refused_messages": refused,
            "monitor_refused_connections": server.transport.refused_connections,
            "monitor_refused_keys": server.refused_keys,
            "monitor_refused_rights": server.refused["not_allowed"] + state.not_allowed,
            **self._sinks.gauges(),
        }
        free = self._cores.look()
        here = all(m.host == socket.gethostname() for m in self._registry.members)
        # other machines have other cores
        return figures | ({FREE_CORES: free} if free is not None and here else {})

    def _end(self) -> None:
        """Write the last line and the summary."""
        reason = self.state.reason or "stopped"
        line, seed = self._make_line(), self._context.config.run.seed
        written = self._files.finish(line, self._metrics, reason=reason, seed=seed)
        self._plugins.close()
        if not self._context.start.by_hand:
            return
        if not written:
            raise LearningLost(
                f"the run ended and {self._folder.summary_path} could not be written, see "
                "event=summary_not_written above; free space and start the roles again to resume"
            )
        if (summary := self._folder.read_summary()) is not None:
            print(closing_words(self._context.config, summary), flush=True)


def _open_plugins(
    config: Config, folder: RunFolder, files: MonitorFiles
) -> dict[str, MonitorPlugin]:
    """The tuner if it is on, the strategies, then the configured plug-ins; later ones overrule."""
    workers_of = {spec.tuned_workers: spec.name for spec in ROLES.values() if spec.tuned_workers}
    plugins: dict[str, MonitorPlugin] = {}
    if most_counts(config):
        plugins[TUNER] = TunerPlugin(config, folder.path, workers_of, show=files.show_tuner)
    plugins |= open_strategies(config, folder.path, roles_of(config), show=files.show_strategy)
    return plugins | load_plugins(config.monitor.plugins)


def _open_registry(context: RoleContext) -> Registry:
    config = context.config
    most = config.monitor.max_processes, "monitor.max_processes"
    if not context.inline:
        room = max(1, most_connections() - _OTHER_CONNECTIONS)
        most = min(most, (room, "the monitor's limit of open files (ulimit -n)"))
    return Registry(
        silent_after_s=config.monitor.silent_after_s,
        heartbeat_every_s=config.monitor.heartbeat_every_s,
        heartbeats_per_s=config.monitor.heartbeats_per_s,
        most=most,
        first_numbers={
            spec.name: spec.most_processes(config)
            for spec in ROLES.values()
            if not context.start.by_hand and spec.fixed(config) is None
        },
    )


def _send(server: Server, messages: list[OutgoingMessage]) -> None:
    for message in messages:
        server.send(message.routing_id, message.message)
