"""Members as detached Ray actors on the nodes of a cluster; their folders travel with them."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from aclearn.config import Config, PopulationConfig, SupervisorConfig
from aclearn.errors import ConfigError, RunFolderError
from aclearn.files import disk_is_full
from aclearn.launch import EXIT_GIVE_UP, RoleCommand, StopFlag
from aclearn.launch.log_tail import log_tail
from aclearn.launch.restart_policy import RestartPolicy
from aclearn.runs import write_atomically
from services.launcher.ray_place import check_keys, learning_device
from services.launcher.seed_runs import cores_of
from services.on_ray.cluster import RayCluster, open_cluster, unplaced_words
from services.on_ray.host import FILES, Order, pack, unpack
from services.on_ray.process import LongWaits, ProcessOnRay
from services.on_ray.room import Need, Node, admits, room_for
from services.population.engine import EXIT_DISK_FULL, DiskFull, Outcome, Task
from services.population.member import ROUND_FILE, dead, read_outcome

_LOGGER = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.1
#: Seconds for a member beyond its `supervisor.stop_timeout_s`.
_END_S: Final = 3.0
#: Seconds between two starts of a member, at least.
_LEAST_PAUSE_S: Final = 2.0
#: In a population's folder: a random number that another population does not have.
_ID: Final = "ray_id"
#: A member's output, in its folder.
_LOG: Final = "logs/member.log"
#: Seconds for which a member that has ended waits for a driver that was killed.
_ABANDONED_AFTER_S: Final = 3600.0


class RayEngine:
    """Each member's round is a process on a node that Ray chooses.

    Its folder travels there and, when the process has ended, back: nodes need no shared folder. A
    member whose node dies begins the round again elsewhere, from its folder here. One whose driver
    is killed goes on, and a resumed driver takes it over. A member is lost after
    `supervisor.max_restarts` new starts in a round.

    Args:
        at_once: most members at a time; None: as the nodes have room for.

    Raises:
        ConfigError: the cluster cannot be used, or no node has room for a member.
    """

    def __init__(self, config: Config, stop: StopFlag, at_once: int | None = None) -> None:
        check_members(config)
        self._at_once, self._supervisor = at_once, config.supervisor
        self._end_within_s = config.supervisor.stop_timeout_s + _END_S
        self._running: dict[int, _Running] = {}
        self._waits = LongWaits()
        self._open = ExitStack()
        self._cluster: RayCluster = self._open.enter_context(open_cluster(stop))
        try:
            self._need = need_of_member(config, self._cluster.nodes())
            if self._room() == 0 and not stop:
                raise ConfigError(
                    "--on ray: no node has room for a member, which takes "
                    f"{unplaced_words([self._need], self._cluster.nodes())}. Add a node, or set "
                    "ray.num_cpus={member: …} or ray.num_gpus={member: …} lower"
                )
        except BaseException:
            self.close()
            raise

    def _room(self) -> int:
        return room_for(self._need, self._cluster.nodes()).count

    def run(self, tasks: Sequence[Task], stop: StopFlag) -> Iterator[Outcome]:
        """Train and judge; see `Engine`."""
        population = _name_of(tasks[0].folder.parent) if tasks else ""
        waiting = [_Running(task, self._supervisor, population) for task in tasks]
        try:
            self._take_over(waiting)
            while (waiting or self._running) and not stop:
                self._say_news()
                room = self.at_once - len(self._running)
                for begun in [each for each in waiting if each.is_due][: max(0, room)]:
                    waiting.remove(begun)
                    try:
                        begun.start(self._cluster, self._need)
                    except OSError as error:  # its folder cannot be read
                        if disk_is_full(error):
                            raise DiskFull(begun.task.folder) from error
                        task, detail = begun.task, f"cannot be started: {error}"
                        yield dead(task.folder, task.member, "failed", detail, begun.restarts)
                        continue
                    self._running[begun.task.member] = begun
                for running in list(self._running.values()):
                    if not running.process.exited():
                        continue
                    del self._running[running.task.member]
                    outcome = self._judge(running)
                    if outcome is None:
                        waiting.insert(0, running)
                    else:
                        yield outcome
                time.sleep(_LOOK_EVERY_S)
        finally:
            self._end(stop)

    @property
    def at_once(self) -> int:
        """Most members at a time on the nodes of this moment."""
        room = self._room()
        return max(1, room if self._at_once is None else min(room, self._at_once))

    def _take_over(self, waiting: Sequence[_Running]) -> None:
        """Find the members of a killed driver; end those that are of no use any more."""
        left = self._cluster.named(waiting[0].population) if waiting else []
        for running in waiting:
            for name in [name for name in left if name.startswith(running.prefix)]:
                running.left = name
                running.restarts = int(name.removeprefix(running.prefix).partition(".")[0])
                left.remove(name)
        for name in left:
            self._cluster.end_named(name)

    def _say_news(self) -> None:
        while self._cluster.notes:
            _LOGGER.warning(self._cluster.notes.pop(0))
        processes = {each.task.folder.name: each.process for each in self._running.values()}
        for sentence in self._waits.news(processes, self._cluster.nodes(), time.monotonic()):
            _LOGGER.warning(sentence)

    def _judge(self, running: _Running) -> Outcome | None:
        """The outcome of a member whose process has ended; None: it is started again."""
        arrived, code, task = running.fetch(), running.process.reap(), running.task
        outcome = read_outcome(task.folder, task.round) if arrived else None
        if outcome is not None:
            return replace(outcome, restarts=running.restarts)
        if code != EXIT_GIVE_UP and running.may_restart():
            return None  # on another node, if the disk of this one is full
        if code == EXIT_DISK_FULL:
            raise DiskFull(task.folder)
        detail = f"{running.process.ending(code)}: {running.last_words}"
        return dead(task.folder, task.member, "failed", detail, running.restarts)

    def _end(self, stop: StopFlag) -> None:
        """End the members that run by this process's signal, and fetch what they have saved."""
        number = signal.Signals.__members__.get(stop.reason or "", signal.SIGTERM)
        deadline = time.monotonic() + self._end_within_s
        left = list(self._running.values())
        try:
            for running in left:
                running.process.terminate(number)
            while left and time.monotonic() < deadline and not stop.forced:
                for running in [each for each in left if each.process.exited()]:
                    left.remove(running)
                    running.fetch()
                time.sleep(_LOOK_EVERY_S)
        finally:  # a full disk, say: detached actors would go on
            for running in self._running.values():
                running.process.reap()
            self._running = {}

    def close(self) -> None:
        """Leave the cluster; `run` has ended all members."""
        self._open.close()


class _Running:
    """A member's process in this round."""

    def __init__(self, task: Task, supervisor: SupervisorConfig, population: str) -> None:
        self.task, self.restarts, self._due = task, 0, 0.0
        # a node's death is known some seconds later: until then a start there would be lost too
        self._policy = RestartPolicy(
            supervisor.max_restarts,
            float("inf"),
            max(_LEAST_PAUSE_S, supervisor.backoff_first_s),
            max(_LEAST_PAUSE_S, supervisor.backoff_max_s),
        )
        #: Of the names of the population's actors, and of this round's with this configuration.
        self.population = f"{population}-"
        # a resumed population is searched for modules in other places, too, and may go on longer
        config = task.config.with_run(dir="", experiment=None, pythonpath=())
        config = config.model_copy(update={"population": PopulationConfig()})
        digest = _digest(config.to_yaml().encode())
        self.prefix = f"{population}-{task.folder.name}-round-{task.round}-{digest}-start-"
        #: Name of the actor that a killed driver has left.
        self.left: str | None = None
        self.process: ProcessOnRay

    @property
    def is_due(self) -> bool:
        """Whether its pause before another start is over."""
        return time.monotonic() >= self._due

    def may_restart(self) -> bool:
        """Count a start that failed; whether another one follows, after a pause."""
        pause_s = self._policy.failed(time.monotonic())
        if pause_s is None:
            return False
        self.restarts, self.left = self.restarts + 1, None
        self._due = time.monotonic() + pause_s
        return True

    def start(self, cluster: RayCluster, need: Need) -> None:
        task = self.task
        argv = ("-P", "-m", "services.population.member", f"{FILES}/{task.folder.name}")
        command = RoleCommand(
            "member",
            task.folder.name,
            (*argv, str(task.member), str(task.round)),
            {},
            task.folder / _LOG,
        )
        # a run folder by its sub-folders, which is then the run's present place
        command.log_path.parent.mkdir(exist_ok=True)
        order = Order(
            command.role,
            command.name,
            command.argv,
            command.environment,
            self.restarts,
            folder_name=task.folder.name,
            folder=pack(task.folder, without=_LOG),  # it is written here
            abandoned_after_s=_ABANDONED_AFTER_S,
        )
        name = self.left or f"{self.prefix}{self.restarts}"
        self.process = ProcessOnRay(
            cluster, command, order, need, detached_as=name, is_left=self.left is not None
        )

    def fetch(self) -> bool:
        """Bring the folder back; False if it is lost with its node. The outcome comes last.

        Raises:
            DiskFull: there is no room for it here.
        """
        content, folder = self.process.folder(), self.task.folder
        if content is None:
            return False
        try:
            unpack(content, folder, last=ROUND_FILE, mirrored="checkpoints")
        except OSError as error:
            if disk_is_full(error):
                raise DiskFull(folder) from error
            raise
        return True

    @property
    def last_words(self) -> str:
        """The last line of its log."""
        said = log_tail(self.task.folder / _LOG, start=self.process.log_start)
        return said.rpartition("\n")[2] or "its log is empty"


def _name_of(folder: Path) -> str:
    """What the names of a population's actors begin with; another one at its place has another.

    Raises:
        RunFolderError: the folder cannot be read or written.
    """
    path = folder / _ID
    try:
        if not path.exists():
            write_atomically(path, secrets.token_hex(16).encode())
        known = path.read_bytes() + os.fsencode(folder.absolute())  # it may have been copied
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be written or read ({error.strerror}); mend that, then continue with "
            "--resume"
        ) from error
    return f"population-{_digest(known)}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def check_members(config: Config) -> None:
    """Raise `ConfigError` for keys that contradict members on the nodes of a cluster."""
    check_keys(config)
    if config.monitor.port is not None:
        raise ConfigError(
            f"--on ray: members on one node cannot listen at one monitor.port, "
            f"{config.monitor.port}; set it to null"
        )


def need_of_member(config: Config, nodes: Sequence[Node]) -> Need:
    """What the whole run of a member takes of one node.

    Args:
        nodes: of the cluster; where one that a member may have has a GPU, it takes one on the
            device `auto`.
    """
    labels = config.ray.labels.get("member", {})
    device = learning_device(config)
    there = any(node.gpus for node in nodes if admits(node, Need(0.0, labels=labels)))
    on_gpu = device.startswith("cuda") or (device == "auto" and there)
    return Need(
        config.ray.num_cpus.get("member", float(cores_of(config))),
        config.ray.num_gpus.get("member", float(on_gpu)),
        labels,
    )
