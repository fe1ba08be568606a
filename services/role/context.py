"""Shared parts of a role: configuration, name, sockets, stop flag."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
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
    Admission,
    AllowedKey,
    Client,
    ClientKeys,
    Heartbeat,
    Hello,
    InProcessNetwork,
    KeyPair,
    Message,
    OwnKey,
    Server,
    ServerKeys,
    Transport,
    ZmqTransport,
    bind_router,
    connect_dealer,
    new_incarnation,
    new_pair,
    parse_endpoint,
    tcp_endpoint,
)
from services.role.agreement import config_digests, space_digests
from services.role.health import HealthFile
from services.role.monitor_client import MonitorClient
from services.role.seeds import Seeds
from services.wiring import ENDPOINTS

#: The messages that a server accepts, each with the roles that may send it.
Accepts = Mapping[type[Message], Collection[str]]

if TYPE_CHECKING:  # most roles have no torch
    from aclearn.learning.ranks import LockstepRanks


def own_key(config: Config, role: str) -> OwnKey | None:
    """The key of a process of this role in `network.keys_dir`; None if it is not set.

    Raises:
        EndpointError: there is none, or it cannot be used.
    """
    keys_dir = config.network.keys_dir
    return OwnKey(Path(keys_dir), role) if keys_dir else None


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
        self.key = own_key(self.config, self.role)
        #: Who may connect to this process's servers; made with the first of them.
        self._admission: Admission | None = None
        #: Of this process's connections, with their suffixes. Other processes do not know it: they
        #: could take the connections over.
        self.routing_id = new_incarnation().encode()
        self._socket_files: list[Path] = []

    @cached_property
    def served_pair(self) -> KeyPair:
        """What the servers of this process prove, but for a monitor's; new at each start."""
        return new_pair()

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
            keys=(keys := self.server_keys(self.served_pair)),
        )
        server = self._server(self._owned(socket_, endpoint, keys), accepts, array_bytes)
        self._for_policies(server)
        if is_tcp and network.announce_host is not None:
            endpoint = str(tcp_endpoint(network.announce_host, parse_endpoint(endpoint).port))
        return server, endpoint

    def serve_at(self, address: str, accepts: Accepts, *, array_bytes: int = 0) -> Server:
        """A server bound to exactly `address`; `array_bytes` bounds the arrays of one message.

        It proves the key of this process, which others know before they connect.
        """
        if self.run.network is not None:
            return self._server(self.run.network.bind(self.name, address), accepts, array_bytes)
        keys = None if self.key is None else self.server_keys(self.key.pair)
        socket_, endpoint = bind_router(self.zmq_context, address, keys=keys)
        return self._server(self._owned(socket_, endpoint, keys), accepts, array_bytes)

    def server_keys(self, pair: KeyPair) -> ServerKeys | None:
        """What a server needs that proves this pair; None without keys."""
        return None if self.key is None else ServerKeys(pair, self.admission)

    @property
    def admission(self) -> Admission:
        """Who may connect to the servers of this process."""
        if self._admission is None:
            self._admission = Admission(self.zmq_context)
        return self._admission

    def allow(self, keys: Sequence[AllowedKey]) -> None:
        """Admit the holders of these keys, and no others; from the monitor."""
        if self._admission is not None:
            self._admission.allow(keys)

    def _owned(
        self, socket_: zmq.Socket[bytes], endpoint: str, keys: ServerKeys | None
    ) -> ZmqTransport:
        """The transport of a bound socket; `close` removes its file."""
        if path := parse_endpoint(endpoint).path:
            self._socket_files.append(Path(path))
        return ZmqTransport(socket_, keys)

    def _server(self, transport: Transport, accepts: Accepts, array_bytes: int) -> Server:
        return Server(
            transport, self.run_name, self.incarnation, accepts=accepts, array_bytes=array_bytes
        )

    def _for_policies(self, server: Server) -> Server:
        """The server, for messages about the run's policies alone."""
        server.policies = self.config.policy_names()
        return server

    def connect(self, endpoint: str, suffix: str = "", *, server_key: str | None = None) -> Client:
        """A client of the server at `endpoint`.

        Args:
            suffix: of the routing id; another one for each client of this process there.
            server_key: the public key that the server proves; None for the monitor's.
        """
        routing_id = self.routing_id + suffix.encode()
        transport: Transport
        if self.run.network is not None:
            transport = self.run.network.connect(self.name, endpoint, routing_id=routing_id)
        else:
            keys = self._client_keys(server_key)
            transport = ZmqTransport(
                connect_dealer(self.zmq_context, endpoint, routing_id=routing_id, keys=keys)
            )
        client = Client(transport, self.run_name, self.incarnation)
        client.policies = (*client.policies, *self.config.policy_names())
        return client

    def _client_keys(self, server_key: str | None = None) -> ClientKeys | None:
        if self.key is None:
            return None
        return ClientKeys(self.key.pair, server_key or self.key.monitor_key)

    def watch_key(self, client: Client) -> Callable[[], bool]:
        """A look at this process's key, to take now and then, for its client of the monitor.

        It connects the client again once the key, or the monitor's, is another one, and returns
        whether it did.
        """
        if (key := self.key) is None:
            return lambda: False
        pair, monitor_key = key.pair, key.monitor_key

        def look() -> bool:
            nonlocal pair, monitor_key
            key.look()
            if key.pair.public == pair.public and key.monitor_key == monitor_key:
                return False
            pair, monitor_key = key.pair, key.monitor_key
            if parse_endpoint(self.run.monitor).transport != "tcp":
                return False
            client.transport.reconnect(self.run.monitor, ClientKeys(pair, monitor_key))
            return True

        return look

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
            self.served_pair.public if endpoints and self.key is not None else "",
        )

    def join(
        self,
        heartbeat: Callable[[], Heartbeat],
        endpoints: Mapping[str, str] | None = None,
        *,
        on: Obeyed | None = None,
        postpones: bool = False,
        generation: int = 0,
        suffix: str = "",
    ) -> MonitorClient:
        """This role's client of the monitor.

        Args:
            endpoints: name → endpoint of this role's servers.
            suffix: tells the connection from an earlier one of this process.
            on: directives that this role obeys → what it does; `ValueError` is a refusal.
            postpones: leave others unanswered, for this process's next client.
        """
        client = self.connect(self.run.monitor, suffix)
        return MonitorClient(
            client,
            watch_key=self.watch_key(client),
            allow=self.allow,
            hello=self.hello(dict(endpoints or {}), generation=generation),
            heartbeat=heartbeat,
            heartbeat_every_s=self.config.monitor.heartbeat_every_s,
            on=on,
            postpones=postpones,
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
        if self._admission is not None:
            self._admission.close()
        self.zmq_context.destroy(linger=0)
