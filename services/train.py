"""`aclearn train`: start every role on this machine, look after them, show the run, end them."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from aclearn.config import Config
from aclearn.errors import RoleFailure
from aclearn.launch import RoleCommand, StopFlag, Supervisor
from aclearn.monitoring import RunConsole, open_console
from aclearn.runs import RunFolder
from aclearn.wire import Client, Status, StatusRequest, StopRun, tcp_endpoint
from services.monitor import SOCKET_DIRECTORY_PREFIX, STARTED_AT_VARIABLE
from services.policies import architecture_of, make_chain
from services.role import RoleContext
from services.role_folder import check_same_run

_LOGGER = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.1
#: Seconds after the monitor's end in which the others end by themselves.
_STRAGGLE_S = 10.0
_STATUS_EVERY_S = 1.0
#: Share of `supervisor.stop_timeout_s` that the monitor gets for an orderly end.
_ORDERLY_SHARE = 0.75
#: States of a role that runs or will run again.
_STAYS = ("new", "running", "waiting")


def monitor_addresses(config: Config, directory: Path) -> tuple[str, str]:
    """Where the monitor listens, and where the roles of this machine find it.

    That is its configured port, else a socket file in `directory`.
    """
    if config.monitor.port is None:
        address = f"ipc://{directory}/monitor.sock"
        return address, address
    bound = tcp_endpoint(config.network.bind_host, config.monitor.port)
    if not bound.is_wildcard:
        return str(bound), str(bound)
    loopback = "::1" if ":" in bound.host else "127.0.0.1"
    return str(bound), str(tcp_endpoint(loopback, config.monitor.port))


def role_commands(
    config: Config, folder: RunFolder, bound: str, monitor: str, *, started_at: float
) -> list[RoleCommand]:
    """How every role of the run is started, the monitor first.

    Args:
        config: of the run.
        folder: of the run.
        bound: where the monitor listens.
        monitor: where the others find it.
        started_at: when the command was started, in seconds since the epoch.
    """
    counts = {"monitor": 1, "trainer": 1}
    if config.actors.inference == "predictor":
        counts["predictor"] = config.predictor.processes
    if config.compressor.chain:
        counts["compressor"] = config.compressor.processes
    counts["actor"] = config.actors.processes
    return [
        role_command(
            config,
            folder,
            bound if role == "monitor" else monitor,
            role,
            index,
            started_at=started_at,
        )
        for role, count in counts.items()
        for index in range(count)
    ]


def role_command(
    config: Config, folder: RunFolder, monitor: str, role: str, index: int, *, started_at: float
) -> RoleCommand:
    """How one role is started."""
    threads = config.predictor.threads if role == "predictor" else 1
    name = f"{role}-{index}"
    arguments = ("role", role, str(folder.config_path), "--monitor", monitor)
    return RoleCommand(
        role,
        name,
        # -P: a folder named services in the current one is somebody else's
        (sys.executable, "-P", "-m", "services.cli", *arguments, "--name", name),
        {
            # every process is one core's worth; idle pools would fight for the cores
            "OMP_NUM_THREADS": str(threads),
            STARTED_AT_VARIABLE: repr(started_at),
        },
        folder.log_path(role, str(index)),
    )


class MonitorLine:
    """The parent's line to the monitor: asks how the run is, asks it to end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked_at = float("-inf")

    def poll(self, now: float) -> dict[str, Any] | None:
        """The newest status if one came, else None; asks when it is time."""
        newest = None
        while (envelope := self._client.receive(0.0)) is not None:
            if isinstance(envelope.message, Status):
                newest = json.loads(envelope.message.json)
        if now - self._asked_at >= _STATUS_EVERY_S and self._client.send(StatusRequest()):
            self._asked_at = now
        return newest

    def stop(self, reason: str) -> bool:
        """Ask for the end of the run; False when the monitor cannot be reached."""
        return self._client.send(StopRun(reason), timeout_s=0.5)


class RunParent:
    """Watches supervisor and monitor until the run is over.

    Args:
        config: of the run.
        supervisor: with every role, not yet started.
        line: to the monitor.
        console: shows the run.
        stop: set by signals.
        actor_command: how actor number i is started, for a tuner that wants another number of them.
    """

    def __init__(
        self,
        config: Config,
        supervisor: Supervisor,
        line: MonitorLine,
        console: RunConsole,
        stop: StopFlag,
        actor_command: Callable[[int], RoleCommand],
    ) -> None:
        self._config, self._supervisor, self._line = config, supervisor, line
        self._console, self._stop = console, stop
        self._end_by: float | None = None
        self._killed = 0
        self._noted = 0
        self._actor_command = actor_command

    def run(self) -> None:
        """Until every role has ended by itself, or a signal came.

        Raises:
            RoleFailure: a role died too often; everything else has been ended.
        """
        failure: RoleFailure | None = None
        try:
            self._supervisor.start()
            self._watch(deadline=None)
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

    def _watch(self, deadline: float | None) -> None:
        monitor_ended_at: float | None = None
        while not self._supervisor.finished:
            now = time.monotonic()
            if deadline is None and self._stop:
                return
            if deadline is None and self._monitor_is_done():
                # The last to go. Who is left came after it, as when a run that has reached its
                # bound is resumed, and would wait for it for ever.
                monitor_ended_at = now if monitor_ended_at is None else monitor_ended_at
                if now - monitor_ended_at > _STRAGGLE_S:
                    return
            if deadline is not None and (
                now > deadline or self._stop.forced or self._monitor_is_done()
            ):
                return
            for event in self._supervisor.poll():
                if event.kind not in ("started", "done"):
                    self._console.note(f"{event.name} {event.kind}: {event.detail}")
            status = self._line.poll(now)
            if status is not None:
                self._show(status)
                if deadline is None and status["phase"] == "running":
                    self._adjust_actors(status.get("actors_wanted"))
            time.sleep(_LOOK_EVERY_S)

    def _end_orderly(self, reason: str) -> None:
        """Let the monitor end the run; whoever is left after that gets a signal."""
        timeout_s = self._config.supervisor.stop_timeout_s
        end_by = self._end_by = time.monotonic() + timeout_s
        if not self._line.stop(reason):
            return  # no monitor that could tell the others
        while True:
            try:
                self._watch(end_by - timeout_s * (1 - _ORDERLY_SHARE))
            except RoleFailure as error:
                _LOGGER.error("event=role_failed reason=%r", str(error))
                continue
            return

    def _monitor_is_done(self) -> bool:
        roles = self._supervisor.roles()
        return any(role.role == "monitor" and role.state == "done" for role in roles)

    def _show(self, status: Mapping[str, Any]) -> None:
        roles = [
            {"role": r.role, "name": r.name, "state": r.state, "restarts": r.restarts, "pid": r.pid}
            for r in self._supervisor.roles()
        ]
        if status["line"]:
            self._console.update(status["line"], roles)
        names = {role["name"] for role in roles}
        # the monitor counts from 0 again when it was started again
        new = status["silences"] - min(self._killed, status["silences"])
        for name in status["silent"][len(status["silent"]) - min(new, len(status["silent"])) :]:
            # it lives, or the supervisor would know: a hang that only a kill ends
            if name in names and status["phase"] == "running":
                self._supervisor.kill(name, "it was silent for too long")
        self._killed = status["silences"]
        noted = status.get("noted", 0)
        new = noted - min(self._noted, noted)
        for text in status["notes"][-new:] if new else ():
            self._console.note(text)
        self._noted = noted

    def _adjust_actors(self, wanted: int | None) -> None:
        """Start or end actors until as many run as the tuner wants; the newest go first."""
        if wanted is None:
            return
        actors = {
            int(role.name.rsplit("-", 1)[1]): role
            for role in self._supervisor.roles()
            if role.role == "actor"
        }
        staying = sorted(i for i, role in actors.items() if role.state in _STAYS)
        for index in staying[wanted:]:
            self._supervisor.remove(f"actor-{index}")
        missing = wanted - len(staying)
        # a name is free again when its process has left; until then the next look adds it
        free = [index for index in range(wanted) if index not in actors]
        for index in free[: max(0, missing)]:
            self._supervisor.add(self._actor_command(index))


@contextmanager
def socket_directory() -> Iterator[Path]:
    """A private directory for socket files, short enough for the system's limit, removed after."""
    directory = Path(tempfile.mkdtemp(prefix=SOCKET_DIRECTORY_PREFIX))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def open_run_folder(config: Config, *, resume: bool) -> RunFolder:
    """The run's folder, locked: a new one, or with `resume` the one that is there.

    Raises:
        ConfigError: the run that is there is one of another environment or policy.
        RunFolderError: it exists already (or, to resume, does not).
    """
    name = config.run.name
    assert name is not None  # resolved when the configuration is loaded
    if not resume:
        return RunFolder.create(config.run.dir, name, config.to_yaml())
    folder = RunFolder.open(Path(config.run.dir) / name, lock=True)
    try:
        check_same_run(config, folder)
        folder.write_config_yaml(config.to_yaml())
    except BaseException:
        folder.close()
        raise
    return folder


def train(
    config: Config, *, resume: bool, stop: StopFlag, console: RunConsole | None = None
) -> dict[str, Any] | None:
    """Run `config` on this machine until it is over; the summary, None if there is none.

    Args:
        config: of the run.
        resume: go on with the run that is there.
        stop: set by signals; ends the run.
        console: shows the run, instead of the one for standard output.

    Raises:
        AclearnError: the run cannot be started, or a role died too often.
    """
    started_at = float(os.environ.get(STARTED_AT_VARIABLE, time.time()))
    if config.compressor.chain:
        # before anything is started or written: a chain that cannot work is the user's to mend
        make_chain(config, architecture_of(config))
    with open_run_folder(config, resume=resume) as folder:
        if config.run.deterministic:
            # imported here: lock-step needs torch in this process, the usual way does not
            from services.lockstep import run_lockstep

            run_lockstep(config, folder, stop=stop)
            return folder.read_summary()
        with socket_directory() as directory:
            bound, address = monitor_addresses(config, directory)
            supervisor = Supervisor(
                role_commands(config, folder, bound, address, started_at=started_at),
                max_restarts=config.supervisor.max_restarts,
                restart_window_s=config.supervisor.restart_window_s,
                backoff_first_s=config.supervisor.backoff_first_s,
                backoff_max_s=config.supervisor.backoff_max_s,
            )
            actor_command = partial(
                role_command, config, folder, address, "actor", started_at=started_at
            )
            context = RoleContext("supervisor", "supervisor", 0, config, address, folder, stop)
            try:
                line = MonitorLine(context.connect(address))
                shown = console or open_console(config.run.bounds(), name=context.run)
                with shown as view:
                    RunParent(config, supervisor, line, view, stop, actor_command).run()
            finally:
                context.close()
        return folder.read_summary()
