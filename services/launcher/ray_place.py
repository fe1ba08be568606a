"""The nodes of a Ray cluster as the place of a run's roles.

Ray chooses the nodes, and our supervisor restarts what is lost: it counts restarts, tells each
start its number for the seeds, and ends hanging roles, here as on one machine. Ray's own restarts
are off.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.launch import RoleCommand, StopFlag
from aclearn.wire import LIST_FILE, create_keys, key_path, tcp_endpoint
from services.launcher.place import Note
from services.launcher.seed_runs import busy_threads
from services.on_ray.cluster import RayCluster, open_cluster, unplaced_words
from services.on_ray.host import FILES, NODE_IP, Order
from services.on_ray.process import LongWaits, ProcessOnRay
from services.on_ray.room import Need, Node, room_for
from services.roles import ACTOR, KEY_ROLES, MONITOR, ROLES, TRAINER, RoleSpec
from services.start.temporary_directory import RAY, temporary_directory

_CONFIG_FILE: Final = "config.yaml"
#: Seconds for which a smaller number of actors must hold, so that those that died with their node
#: are known to be dead.
_SHRINK_AFTER_S: Final = 10.0
_COUNT_EVERY_S: Final = 1.0


@contextmanager
def open_ray(config: Config, stop: StopFlag) -> Iterator[OnRay | None]:
    """The cluster of RAY_ADDRESS, or a local one; None if `stop` was set while it was asked.

    Raises:
        ConfigError: the run cannot take place there.
    """
    _check_config(config)
    with temporary_directory(RAY, stop) as keys, open_cluster(stop) as cluster:
        if stop:
            yield None
            return
        if config.network.keys_dir is None:
            create_keys(keys, KEY_ROLES)
        yield OnRay(config, cluster, config.network.keys_dir or str(keys))


def _check_config(config: Config) -> None:
    """Raise `ConfigError` for what contradicts a cluster."""
    if config.run.deterministic:
        raise ConfigError(
            "--on ray: run.deterministic runs all roles in one process, which needs no cluster; "
            "leave one of them out"
        )
    if config.tuner.enabled and "actors" in config.tuner.counts:
        raise ConfigError(
            "--on ray: the number of actors follows the cluster; take actors out of tuner.counts"
        )
    check_keys(config)


def check_keys(config: Config) -> None:
    """Raise `ConfigError` for keys of the group `ray` that name no role."""
    known = {*ROLES, "member"}
    for key in ("num_cpus", "num_gpus", "labels"):
        if unknown := sorted(getattr(config.ray, key).keys() - known):
            raise ConfigError(
                f"ray.{key}: {unknown[0]!r} is no role; expected one of {', '.join(sorted(known))}"
            )


def learning_device(config: Config) -> str:
    """The device on which a run learns, as its key has it; a deterministic one does on the CPU."""
    resident = config.resident
    if config.run.deterministic:
        return "cpu"
    return config.trainer.device if resident.envs is None else resident.device


def need_of(spec: RoleSpec, index: int, config: Config, cluster: RayCluster) -> Need:
    """What process `index` of a role takes of the cluster.

    The writers of the run folder run on this node, and so do trainers that may not exchange
    gradients with other machines.
    """
    at_home = (spec.needs_folder and index == 0) or (
        spec is TRAINER and not config.network.plain_group
    )
    here = next((node for node in cluster.nodes() if node.id == cluster.here), None)
    learns_on_gpu = spec is TRAINER and learning_device(config) != "cpu" and here is not None
    return Need(
        config.ray.num_cpus.get(
            spec.name, 0.0 if spec is MONITOR else float(busy_threads(spec, config))
        ),
        config.ray.num_gpus.get(spec.name, float(learns_on_gpu and here.gpus > 0)),  # type: ignore[union-attr]
        config.ray.labels.get(spec.name, {}),
        cluster.here if at_home else None,
    )


class OnRay:
    """A place for roles; see `Place`.

    Raises:
        ConfigError: the cluster has no room for the roles and one actor.
    """

    overrides: tuple[str, ...]
    config_path: str | None = f"{FILES}/{_CONFIG_FILE}"

    def __init__(self, config: Config, cluster: RayCluster, keys_dir: str) -> None:
        self._cluster, self._given = cluster, config
        self._processes: dict[str, ProcessOnRay] = {}
        self._config_yaml = b""
        self._counts: deque[tuple[float, int]] = deque(maxlen=64)
        self._waits = LongWaits()
        port = config.monitor.port
        if port is None:
            with socket.socket() as probe:
                probe.bind((cluster.address, 0))
                port = probe.getsockname()[1]
        self.bound = self.monitor = str(tcp_endpoint(cluster.address, port))
        network = config.network.model_copy(
            update={"bind_host": cluster.address, "keys_dir": keys_dir}
        )
        self._needs = {
            f"{spec.name}-{index}": need_of(spec, index, config, cluster)
            for spec in ROLES.values()
            if spec is not ACTOR
            for index in range(spec.processes(config))
        }
        self._actor_need = need_of(ACTOR, 0, config, cluster)
        processes = self._check_room(cluster.nodes())
        actors = config.actors.model_copy(update={"processes": processes})
        self.config = config.model_copy(update={"network": network, "actors": actors})
        self.overrides = (
            f"network.bind_host={NODE_IP}",
            f"network.keys_dir={FILES}",
            f"actors.processes={processes}",
        )

    def _check_room(self, nodes: list[Node]) -> int:
        """The number of actors to begin with."""
        room = room_for(self._actor_need, nodes, [(need, None) for need in self._needs.values()])
        if room.unplaced:
            raise ConfigError(
                "--on ray: the cluster has no room for all roles, which take "
                f"{unplaced_words(list(self._needs.values()), nodes)}; the trainer takes its part "
                f"on this node, {self._cluster.address}. Add nodes, or lower ray.num_cpus"
            )
        if ACTOR.processes(self._given) == 0:
            return self._given.actors.processes
        if room.count == 0:
            raise ConfigError(
                "--on ray: beside the other roles the cluster has no room for an actor, which takes"
                f" {unplaced_words([self._actor_need], nodes)}. Add a node, or lower ray.num_cpus"
            )
        return self._bounded(room.count)

    def _bounded(self, count: int) -> int:
        room = self._given.monitor.max_processes - len(self._needs)
        return max(1, min(count, self._given.ray.max_actors, room))

    def kept(self, config: Config) -> Config:
        """`config` with the addresses and the number of actors that the user gave."""
        processes = self._given.actors.processes
        actors = config.actors.model_copy(update={"processes": processes})
        return config.model_copy(update={"network": self._given.network, "actors": actors})

    def open_files(self, config_yaml: bytes) -> None:
        """Take the configuration, which travels with each role."""
        self._config_yaml = config_yaml

    def _files_of(self, role: str) -> dict[str, bytes]:
        """What travels with a role: the configuration, and its own key; a monitor has the list."""
        keys = Path(str(self.config.network.keys_dir))
        paths = [key_path(keys, role), *([keys / LIST_FILE] if role == MONITOR.name else [])]
        return {_CONFIG_FILE: self._config_yaml} | {path.name: path.read_bytes() for path in paths}

    def start(self, command: RoleCommand, restarts: int) -> ProcessOnRay:
        """An actor of Ray with the role's process."""
        order = Order(
            command.role,
            command.name,
            command.argv[1:],
            command.environment,
            restarts,
            self._files_of(command.role),
        )
        need = self._needs.get(command.name, self._actor_need)
        process = self._processes[command.name] = ProcessOnRay(self._cluster, command, order, need)
        return process

    def actors(self, tuned: int | None, note: Note) -> int | None:
        """As many actors as the nodes have CPUs for, beside the other roles."""
        now, nodes = time.monotonic(), self._cluster.nodes()
        while self._cluster.notes:
            note(self._cluster.notes.pop(0))
        if self._counts and now - self._counts[-1][0] < _COUNT_EVERY_S:
            return self._most()
        for sentence in self._waits.news(self._processes, nodes, now):
            note(sentence)
        others = [
            (need, self._processes[name].node_id if name in self._processes else None)
            for name, need in self._needs.items()
        ]
        count = self._bounded(room_for(self._actor_need, nodes, others).count)
        self._counts.append((now, count))
        while now - self._counts[0][0] > _SHRINK_AFTER_S:
            self._counts.popleft()
        return self._most()

    def _most(self) -> int | None:
        """The largest of the newest counts; None where the run has no actors."""
        if ACTOR.processes(self._given) == 0:
            return None
        return max(count for _, count in self._counts)
