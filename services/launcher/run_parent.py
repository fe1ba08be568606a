"""The parent of a run: watches supervisor and monitor, shows the run, ends hanging roles."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from aclearn.config import Config
from aclearn.errors import RoleFailure
from aclearn.launch import RoleCommand, RoleStatus, State, StopFlag, Supervisor
from aclearn.telemetry import ActiveClock
from aclearn.views import RunConsole
from services.launcher.status_client import STATUS_EVERY_S, StatusClient
from services.monitor.status_report import member_names
from services.roles import ACTOR, MONITOR, ROLES

_LOGGER = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.1
#: Most seconds between two looks that count as a role's silence: beyond that the parent itself was
#: suspended, e.g. with its container.
_LOOK_COUNTS_S = 1.0
#: Seconds until a role's first hello, besides the time for its environments.
_HELLO_WITHIN_S = 600.0
#: Seconds after the monitor's end for the others to end.
_STRAGGLE_S = 10.0
#: Least number of unanswered requests before the monitor counts as hung.
_LEAST_UNANSWERED = 10
#: Share of `supervisor.stop_timeout_s` for the monitor's orderly end.
_ORDERLY_SHARE = 0.75
#: States of a role that runs or will run again.
_STAYS = ("new", "running", "waiting", "ended")


def hello_within_s(config: Config, role: str) -> float:
    """Longest time from a role's start to its hello, in seconds."""
    environments = ROLES[role].environments(config)
    # each may take this time to be made, and again to be reset
    return _HELLO_WITHIN_S + 2 * environments * config.actors.step_timeout_s


class RunParent:
    """Watches supervisor and monitor until the run is over.

    Args:
        actor_command: gives the command of actor number i, for actors that are added.
        actors: gives the number of actors that there should be, from the number that the monitor
            wants; None for those that there are.
    """

    def __init__(
        self,
        config: Config,
        supervisor: Supervisor,
        line: StatusClient,
        console: RunConsole,
        stop: StopFlag,
        actor_command: Callable[[int], RoleCommand],
        actors: Callable[[int | None], int | None] = lambda tuned: tuned,
    ) -> None:
        self._config, self._supervisor, self._line = config, supervisor, line
        self._console, self._stop = console, stop
        self._end_by: float | None = None
        self._killed = 0
        self._noted = 0
        self._actor_command, self._actors = actor_command, actors
        self._active_clock = ActiveClock(_LOOK_COUNTS_S)
        self._answered_at = 0.0
        self._answered_pid: int | None = None
        #: Running processes that the monitor does not know → since when.
        self._unknown_since: dict[tuple[str, int | None], float] = {}
        self._members: frozenset[str] | None = None
        #: The newest metrics line from the monitor, even if its disk is full.
        self.newest_line: Mapping[str, Any] = {}
        #: Roles that exited with status 0 → number of status requests by then.
        self._ended: dict[str, int] = {}
        #: Names and process ids of ours, past and present; the monitor may list one that has left.
        self._own_pids: set[tuple[str, int | None]] = set()
        #: Foreign processes with names of ours that the console has shown.
        self._strangers: deque[tuple[str, int]] = deque(maxlen=128)

    def run(self) -> None:
        """Run until every role has ended, or a signal came.

        Raises:
            RoleFailure: a role died too often; all others have been ended.
        """
        failure: RoleFailure | None = None
        try:
            self._supervisor.start()
            self._watch()
            if self._stop:
                self._console.note(f"{self._stop.reason}: ending the run, saving a checkpoint")
                self._end_orderly(str(self._stop.reason))
        except RoleFailure as error:
            failure = error
            self._end_orderly(f"role failed: {str(error).splitlines()[0]}"[:1000])
        finally:
            left_s = self._config.supervisor.stop_timeout_s
            if self._end_by is not None:
                left_s = max(0.0, self._end_by - time.monotonic())
            self._supervisor.stop(left_s, forced=lambda: self._stop.forced)
        if failure is not None:
            raise failure

    def _watch(self) -> None:
        """Run until the run has ended or a signal came."""
        monitor_ended_at: float | None = None
        while not (self._supervisor.finished or self._stop):
            now = time.monotonic()
            if monitor_ended_at is None and self._monitor_is("ended"):
                # The monitor ends last. Roles that started after it, as when a run that has reached
                # its bound is resumed, would wait for it forever.
                monitor_ended_at = now
                self._supervisor.expect_end()
            if monitor_ended_at is not None and now - monitor_ended_at > _STRAGGLE_S:
                return
            status = self._look(now)
            self._end_what_hangs(now, status)
            wanted = self._actors(self._line.actors)
            if status is not None and status["phase"] == "running":
                self._adjust_actors(wanted)
            time.sleep(_LOOK_EVERY_S)

    def _end_orderly(self, reason: str) -> None:
        """Let the monitor end the run; roles left after that get a signal."""
        timeout_s = self._config.supervisor.stop_timeout_s
        end_by = self._end_by = time.monotonic() + timeout_s
        self._supervisor.expect_end()
        told = False
        # wait for a monitor that has just started: it writes why the run ended
        while self._monitor_is("running") and not self._stop.forced:
            now = time.monotonic()
            if now > end_by - timeout_s * (1 - _ORDERLY_SHARE):
                return
            told = told or self._line.stop(reason)
            try:
                self._look(now)
            except RoleFailure as error:
                _LOGGER.error("event=role_failed reason=%r", str(error))
            time.sleep(_LOOK_EVERY_S)

    def _look(self, now: float) -> dict[str, Any] | None:
        """Handle and show news of supervisor and monitor; returns the newest status, if any."""
        for event in self._supervisor.poll():
            if event.kind not in ("started", "done"):
                self._console.note(f"{event.name} {event.kind}: {event.detail}")
        status = self._line.poll(now)
        self._judge_ended(status)
        if status is not None:
            self._show(status)
        return status

    def _judge_ended(self, status: Mapping[str, Any] | None) -> None:
        """Count the death of a role that has exited with status 0 while the run continues.

        Only the monitor ends a run, and a role learns of it before this process: only a status
        requested after the exit decides.
        """
        ended = [r.name for r in self._supervisor.roles() if r.state == "ended"]
        self._ended = {name: self._ended.get(name, self._line.asked) for name in ended}
        if status is not None and status["phase"] == "running":
            for name, asked in self._ended.items():
                if status["answers"] > asked:
                    self._supervisor.count_as_death(name)

    def _end_what_hangs(self, now: float, status: Mapping[str, Any] | None) -> None:
        """Kill a monitor that does not answer, and roles that never say hello to it.

        The monitor detects later silence: see `_show`.
        """
        self._active_clock.look(now)
        if status is not None:
            self._answered_at = self._active_clock.seconds
            running = status["phase"] == "running"
            self._members = frozenset(member_names(status["members"])) if running else None
        living = [role for role in self._supervisor.roles() if role.state == "running"]
        self._own_pids |= {(role.name, role.pid) for role in living}
        if status is not None:
            self._note_strangers({role.name for role in living}, status["pids"])
        for role in living:
            if role.role == MONITOR.name:
                self._end_silent_monitor(role, answered=status is not None)
        self._end_unknown([role for role in living if role.role != MONITOR.name])

    def _note_strangers(self, living: set[str], pids: Mapping[str, Mapping[str, int]]) -> None:
        """Log once about each foreign process with the name of one of ours."""
        for host, members in pids.items():
            for name, pid in members.items():
                ours = name not in living or (name, pid) in self._own_pids
                if not ours and (name, pid) not in self._strangers:
                    self._strangers.append((name, pid))
                    self._console.note(
                        f"{name} waits: process {pid} on {host}, which this command has not "
                        "started, has its name; end that process"
                    )

    def _end_silent_monitor(self, monitor: RoleStatus, *, answered: bool) -> None:
        if answered:
            self._answered_pid = monitor.pid
        starts = self._answered_pid is None or monitor.pid != self._answered_pid
        silence_s = max(self._config.monitor.silent_after_s, _LEAST_UNANSWERED * STATUS_EVERY_S)
        limit_s = hello_within_s(self._config, MONITOR.name) if starts else silence_s
        if self._active_clock.seconds - self._answered_at > limit_s:
            self._answered_at = self._active_clock.seconds
            self._supervisor.kill(monitor.name, f"no answer for {limit_s:g} s")

    def _end_unknown(self, living: list[RoleStatus]) -> None:
        members, now = self._members, self._active_clock.seconds
        unknown = [r for r in living if members is not None and r.name not in members]
        before, self._unknown_since = self._unknown_since, {}
        for role in unknown:
            key = (role.name, role.pid)
            since = self._unknown_since[key] = before.get(key, now)
            limit_s = hello_within_s(self._config, role.role)
            if now - since > limit_s:
                self._unknown_since[key] = now
                self._supervisor.kill(role.name, f"the monitor has not known it for {limit_s:g} s")

    def _monitor_is(self, state: State) -> bool:
        roles = self._supervisor.roles()
        return any(role.role == MONITOR.name and role.state == state for role in roles)

    def _show(self, status: Mapping[str, Any]) -> None:
        roles = [
            {"role": r.role, "name": r.name, "state": r.state, "restarts": r.restarts, "pid": r.pid}
            for r in self._supervisor.roles()
        ]
        if status["line"]:
            self.newest_line = status["line"]
            self._console.update(status["line"], [*roles, *self._joined()])
        pids = {role["name"]: role["pid"] for role in roles}
        # a restarted monitor counts from 0 again
        new = status["silences"] - min(self._killed, status["silences"])
        silent = status["silent"]
        for name, pid in silent[len(silent) - min(new, len(silent)) :]:
            # its process runs, else the supervisor would know: it hangs, and only a kill ends it.
            # By process id: its successor may have started meanwhile
            if pids.get(name) == pid and status["phase"] == "running":
                self._supervisor.kill(name, "it was silent for too long")
        self._killed = status["silences"]
        noted = status.get("noted", 0)
        new = noted - min(self._noted, noted)
        for text in status["notes"][-new:] if new else ():
            self._console.note(text)
        self._noted = noted

    def _joined(self) -> list[dict[str, Any]]:
        """Roles that the monitor knows and this process did not start."""
        own = {name for name, _ in self._own_pids}
        return [
            {"role": name.rpartition("-")[0], "name": name, "state": "joined"}
            for name in sorted((self._members or frozenset()) - own)
        ]

    def _adjust_actors(self, wanted: int | None) -> None:
        """Start or end actors to this number: first those without a process, then the newest."""
        if wanted is None:
            return
        actors = {
            int(role.name.rsplit("-", 1)[1]): role
            for role in self._supervisor.roles()
            if role.role == ACTOR.name
        }
        staying = sorted(
            (i for i, role in actors.items() if role.state in _STAYS),
            key=lambda i: (actors[i].pid is None, i),
        )
        # its name is free again when the tuner has given it up
        enough = len(staying) >= wanted
        failed = [i for i, role in actors.items() if role.state == "failed" and enough]
        for index in [*staying[wanted:], *failed]:
            self._supervisor.remove(f"{ACTOR.name}-{index}")
        missing = wanted - len(staying)
        # a name is free again when its process has left; until then the next look adds it
        free = [index for index in range(wanted) if index not in actors]
        for index in free[: max(0, missing)]:
            # if it fails, the others go on
            self._supervisor.add(replace(self._actor_command(index), optional=True))
