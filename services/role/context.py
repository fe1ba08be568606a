"""Shared parts of a role: configuration, name, sockets, stop flag."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from aclearn.config import Config
from aclearn.control.directives import Obeyed
from aclearn.errors import ConfigError
from aclearn.launch import PARENT_PID_VARIABLE, StopFlag
from aclearn.runs import RunFolder
from aclearn.types import EnvSpec
from aclearn.wire import (
    Client,
    ClusterKeys,
    Heartbeat,
    Hello,
    InProcessNetwork,
    Message,
    Server,
    Transport,
    ZmqTransport,
    bind_router,
    connect_dealer,
    load_keys,
    new_incarnation,
    parse_endpoint,
    tcp_endpoint,
)
from services.role.agreement import config_digests, space_digests
from services.role.health import HealthFile
from services.role.monitor_client import MonitorClient
from services.role.seeds import Seeds
from services.wiring import ENDPOINTS

if TYPE_CHECKING:  # most roles have no torch
    from aclearn.learning.ranks import LockstepRanks


def cluster_keys(config: Config) -> ClusterKeys | None:
    """The keys in `network.keys_dir`; None if it is not set.

    Raises:
        EndpointError: they cannot be read.
    """
    keys_dir = config.network.keys_dir
    return load_keys(Path(keys_dir)) if keys_dir else None


@dataclass
class RunEnv:
    """What surrounds a role in its run.

    Attributes:
        folder: of the run; None for roles that write nothing.
        env_spec: of the environments; None for roles that do not need it.
        network: carries the messages of roles in one process; None for ZeroMQ.
        ranks: of the trainers in one process; None where each has its own.
    """

    monitor: str
    folder: RunFolder | None = None
    env_spec: EnvSpec | None = None
    network: InProcessNetwork | None = None
    ranks: LockstepRanks | None = None


@dataclass(frozen=True)
class Clocks:
    """Seconds: for all decisions, of the process's CPU, and real ones for metrics and files."""

    decisions: Callable[[], float] = time.monotonic
    cpu: Callable[[], float] = time.process_time
    wall: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Start:
    """How a role was started.

    Attributes:
        number: of this start of the role; chooses seeds. A parent counts the starts; without one
            it is drawn, since nobody knows of the earlier ones.
        health: receives the reason to wait; None without a health check.
        note: how the previous process of this role ended, as text.
        contained: whether it is the only process of its container: a signal does not end the run,
            and its output is for the user.
        number_given: whether the monitor hands out the role's index, and may hand out another one.
        forced: whether the user wants to take part although settings differ from the run's.
        by_hand: whether the user started this role alone: no parent shows the run.
    """

    number: int = 0
    health: HealthFile | None = None
    note: str = ""
    contained: bool = False
    number_given: bool = False
    forced: bool = False
    by_hand: bool = field(default_factory=lambda: PARENT_PID_VARIABLE not in os.environ)


@dataclass
class RoleContext:
    """One role's place in the run; owns its ZeroMQ context.

    Attributes:
        role: name in the table of roles; supervisor for their parent.
        index: the number in the name; chooses seeds and peers.
    """

    role: str
    index: int
    config: Config
    run: RunEnv
    stop: StopFlag = field(default_factory=StopFlag)
    clocks: Clocks = Clocks()
    start: Start = field(default_factory=Start)
    incarnation: str = field(default_factory=new_incarnation)
    zmq_context: zmq.Context[zmq.Socket[bytes]] = field(default_factory=zmq.Context)

    def __post_init__(self) -> None:
        self.keys: ClusterKeys | None = cluster_keys(self.config)
        self._socket_files: list[Path] = []

    @property
    def name(self) -> str:
        """Unique in the run: role and index, e.g. actor-0."""
        return f"{self.role}-{self.index}"

    @property
    def inline(self) -> bool:
        """Whether the role must start no thread: all roles share one process."""
        return self.run.network is not None

    @property
    def run_name(self) -> str:
        """The run's name, which every message carries."""
        name = self.config.run.name
        if name is None:
            raise RuntimeError("run.name is resolved when a configuration is loaded")
        return name

    def serve(self, name: str, *, array_bytes: int = 0) -> tuple[Server, str]:
        """The bound server of that name in `ENDPOINTS`, and its endpoint.

        `array_bytes` bounds the arrays of one message.
        """
        accepts = ENDPOINTS[name].accepts
        if self.run.network is not None:
            endpoint = f"inproc://{self.incarnation}/{name}"
            transport = self.run.network.bind(self.name, endpoint)
            return self._for_policies(self._server(transport, accepts, array_bytes)), endpoint
        monitor, network = parse_endpoint(self.run.monitor), self.config.network
        announced = tcp_endpoint(network.announce_host or network.bind_host)
        if not monitor.is_loopback and announced.is_loopback:
            raise ConfigError(
                f"network.bind_host: {announced.host} cannot be reached by roles on other "
                f"machines, and the monitor is at {self.run.monitor}; set it to this machine's "
                "address, or to 0.0.0.0"
            )
        is_tcp = monitor.transport == "tcp"
        socket_, endpoint = bind_router(
            self.zmq_context,
            str(tcp_endpoint(network.bind_host, getattr(network.ports, name, None) or 0))
            if is_tcp
            else "ipc",
            directory=None if is_tcp else Path(monitor.path).parent,
            keys=self.keys,
        )
        server = self._server(self._owned(socket_, endpoint), accepts, array_bytes)
        self._for_policies(server)
        if is_tcp and network.announce_host is not None:
            endpoint = str(tcp_endpoint(network.announce_host, parse_endpoint(endpoint).port))
        return server, endpoint

    def serve_at(self, address: str, accepts: Sequence[type[Message]]) -> Server:
        """A server bound to exactly `address`, for messages without arrays."""
        if self.run.network is not None:
            return self._server(self.run.network.bind(self.name, address), accepts, 0)
        socket_, endpoint = bind_router(self.zmq_context, address, keys=self.keys)
        return self._server(self._owned(socket_, endpoint), accepts, 0)

    def _owned(self, socket_: zmq.Socket[bytes], endpoint: str) -> ZmqTransport:
        """The transport of a bound socket; `close` removes its file."""
        if path := parse_endpoint(endpoint).path:
            self._socket_files.append(Path(path))
        return ZmqTransport(socket_)

    def _server(
        self, transport: Transport, accepts: Sequence[type[Message]], array_bytes: int
    ) -> Server:
        return Server(
            transport, self.run_name, self.incarnation, accepts=accepts, array_bytes=array_bytes
        )

    def _for_policies(self, server: Server) -> Server:
        """The server, for messages about the run's policies alone."""
        server.policies = self.config.policy_names()
        return server

    def connect(self, endpoint: str, suffix: str = "") -> Client:
        """A client of the server at `endpoint`.

        Args:
            suffix: of the routing id; another one for each client of this process there.
        """
        routing_id = f"{self.incarnation}{suffix}".encode()
        transport: Transport
        if self.run.network is not None:
            transport = self.run.network.connect(self.name, endpoint, routing_id=routing_id)
        else:
            transport = ZmqTransport(
                connect_dealer(self.zmq_context, endpoint, routing_id=routing_id, keys=self.keys)
            )
        client = Client(transport, self.run_name, self.incarnation)
        client.policies = (*client.policies, *self.config.policy_names())
        return client

    def seeds(self, generation: int) -> Seeds:
        """The seeds of this start, under a trainer of that generation."""
        return Seeds(self.config.run.seed, generation, self.index, self.start.number)

    @property
    def digests(self) -> dict[str, str]:
        """Digests of what must be equal in a run, as far as this role knows it."""
        return config_digests(self.config) | space_digests(self.run.env_spec)

    def hello(self, endpoints: dict[str, str], *, generation: int = 0) -> Hello:
        """This role's hello; `generation` is a trainer's."""
        return Hello(
            self.role,
            self.index,
            socket.gethostname(),
            os.getpid(),
            endpoints,
            self.start.note,
            generation,
            self.digests,
            self.start.forced,
        )

    def join(
        self,
        heartbeat: Callable[[], Heartbeat],
        endpoints: Mapping[str, str] | None = None,
        *,
        on: Obeyed | None = None,
        generation: int = 0,
        suffix: str = "",
    ) -> MonitorClient:
        """This role's client of the monitor.

        Args:
            endpoints: name → endpoint of this role's servers.
            suffix: tells the connection from an earlier one of this process.
            on: directives that this role obeys → what it does; `ValueError` is a refusal.
        """
        return MonitorClient(
            self.connect(self.run.monitor, suffix),
            hello=self.hello(dict(endpoints or {}), generation=generation),
            heartbeat=heartbeat,
            heartbeat_every_s=self.config.monitor.heartbeat_every_s,
            on=on,
            stop=self.stop,
            health=self.start.health,
            number_given=self.start.number_given,
            clock=self.clocks.decisions,
        )

    def close(self) -> None:
        """Close all remaining sockets and remove their files.

        Never blocks, since every socket has a linger of 0.
        """
        if self.run.network is not None:
            self.run.network.disconnect(self.name)
        # before the sockets close; later a file of that name may be another process's
        for file in self._socket_files:
            with suppress(OSError):  # a remaining file does no harm: the next bind removes it
                file.unlink(missing_ok=True)
        self.zmq_context.destroy(linger=0)
