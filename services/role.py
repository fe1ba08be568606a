"""What every role has: its configuration, its name, its sockets and a reason to stop."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import zmq

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.launch import StopFlag
from aclearn.runs import RunFolder
from aclearn.types import EnvSpec
from aclearn.wire import (
    Beat,
    BeatReply,
    Client,
    ClusterKeys,
    Directive,
    ErrorReply,
    Hello,
    Message,
    Peer,
    Peers,
    SaveBest,
    Server,
    SetWorkers,
    bind_router,
    connect_dealer,
    load_keys,
    new_incarnation,
    parse_endpoint,
    tcp_endpoint,
)
from services.health import WAITS_FOR_MONITOR, HealthFile

_LOGGER = logging.getLogger(__name__)

#: Seconds between two questions to a monitor that has not answered: hellos, for instance.
ASK_EVERY_S = 0.5
#: Seconds without an answer after which a role says so in its log, once until it is answered.
_SAY_UNANSWERED_AFTER_S = 5.0
#: So many beats without an answer are a monitor that is gone.
_BEATS_UNANSWERED = 3
#: Seconds that a goodbye may take to leave the socket.
_GOODBYE_LINGER_S = 1.0
#: Most episodes that a beat tells of: more do not fit into a message, and a mean is of 100.
MOST_EPISODES = 1000


def cluster_keys(config: Config) -> ClusterKeys | None:
    """The keys in `network.keys_dir`; None where it names no folder.

    Raises:
        EndpointError: they cannot be read.
    """
    keys_dir = config.network.keys_dir
    return load_keys(Path(keys_dir)) if keys_dir else None


@dataclass
class RoleContext:
    """One role's place in the run; owns its ZeroMQ context.

    Attributes:
        role: actor, predictor, compressor, trainer or monitor; supervisor of who starts them.
        index: the number in the name; chooses seeds and peers.
        config: of the whole run.
        monitor: the one address to know.
        folder: where the run writes; None for roles that write nothing.
        env_spec: what the environments look like; None for roles that need not know.
        stop: set by SIGTERM and Ctrl-C.
        restarts: how often this role was started before; chooses seeds.
        health: where it says whether it works; None where nobody asks.
        note: what became of the process that this one was started after, in words.
        contained: whether it is the only process of its container: a signal to it is not meant for
            the run, and its output is what somebody watches.
    """

    role: str
    index: int
    config: Config
    monitor: str
    folder: RunFolder | None
    stop: StopFlag
    restarts: int = 0
    health: HealthFile | None = None
    env_spec: EnvSpec | None = None
    note: str = ""
    contained: bool = False
    incarnation: str = field(default_factory=new_incarnation)
    zmq_context: zmq.Context[zmq.Socket[bytes]] = field(default_factory=zmq.Context)

    def __post_init__(self) -> None:
        self.keys: ClusterKeys | None = cluster_keys(self.config)

    @property
    def name(self) -> str:
        """Unique in the run: role and index, e.g. actor-0."""
        return f"{self.role}-{self.index}"

    @property
    def run(self) -> str:
        """The run's name, which every message carries."""
        name = self.config.run.name
        if name is None:
            raise RuntimeError("run.name is resolved when a configuration is loaded")
        return name

    def serve(self, accepts: Sequence[type[Message]]) -> tuple[Server, str]:
        """A bound server and its endpoint, on the monitor's transport."""
        monitor, host = parse_endpoint(self.monitor), self.config.network.bind_host
        if not monitor.is_loopback and tcp_endpoint(host).is_loopback:
            raise ConfigError(
                f"network.bind_host: {host} cannot be reached by roles on other machines, and the "
                f"monitor is at {self.monitor}; set it to this machine's address, or to 0.0.0.0"
            )
        socket_, endpoint = bind_router(
            self.zmq_context,
            monitor.transport,
            host=host,
            directory=Path(monitor.path).parent if monitor.transport == "ipc" else None,
            keys=self.keys,
        )
        return Server(socket_, self.run, self.incarnation, accepts=accepts), endpoint

    def serve_at(self, address: str, accepts: Sequence[type[Message]]) -> Server:
        """A server bound to exactly `address`."""
        socket_, _ = bind_router(self.zmq_context, address, keys=self.keys)
        return Server(socket_, self.run, self.incarnation, accepts=accepts)

    def connect(self, endpoint: str) -> Client:
        """A client of the server at `endpoint`."""
        socket_ = connect_dealer(
            self.zmq_context, endpoint, identity=self.incarnation.encode(), keys=self.keys
        )
        return Client(socket_, self.run, self.incarnation)

    def hello(self, endpoints: dict[str, str]) -> Hello:
        """What this role says of itself."""
        return Hello(self.role, self.index, socket.gethostname(), os.getpid(), endpoints, self.note)

    def close(self) -> None:
        """Close every socket that is left; never blocks, since every socket has a linger of 0."""
        self.zmq_context.destroy(linger=0)


class UnansweredWarning:
    """Says once in the log that the monitor has not answered for five seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._due_at = clock() + _SAY_UNANSWERED_AFTER_S

    def look(self, now: float) -> None:
        """Say it when it is time."""
        if now >= self._due_at:
            self.answered()
            _LOGGER.warning(
                "event=monitor_does_not_answer after_s=%g detail='is it running, at the address of "
                "--monitor, with the same run.name and the same keys (network.keys_dir)?'",
                _SAY_UNANSWERED_AFTER_S,
            )

    def answered(self) -> None:
        """From now on there is nothing to say."""
        self._due_at = float("inf")


class Membership:
    """A role's line to the monitor: says hello and beats, learns its peers and what to do.

    `tick` never blocks and is called between any two steps of the role; without a monitor the role
    goes on with the peers that it knows.

    Args:
        client: connected to the monitor; owned by the thread that ticks.
        hello: what to say first, and again when the monitor does not know us.
        beat: makes the next beat; its argument says whether it is the last one.
        beat_every_s: seconds between two beats.
        health: where to say whether there is something to work with.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        client: Client,
        *,
        hello: Hello,
        beat: Callable[[bool], Beat],
        beat_every_s: float,
        health: HealthFile | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._hello, self._make_beat = client, hello, beat
        self._beat_every_s, self._health, self._clock = beat_every_s, health, clock
        self._answered_at = float("-inf")
        self._known = False
        self._next_hello = self._next_beat = clock()
        self._unanswered = UnansweredWarning(clock)
        self._waits = False
        self._refusals: set[str] = set()
        self._unsent: Beat | None = None
        self.peers: tuple[Peer, ...] = ()
        self.generation = -1
        self.stop_reason: str | None = None
        #: Whether the monitor has said so; not where only this process is to leave.
        self.run_is_over = False
        #: How many workers the monitor wants; None as long as it has not said.
        self.workers: int | None = None
        self._best_means: list[float] = []

    def tick(self) -> None:
        """Take what the monitor says and send what is due."""
        while (envelope := self._client.receive(0.0)) is not None:
            self._take(envelope.message)
        now = self._clock()
        if not self._known and now >= self._next_hello:
            self._client.send(self._hello)
            self._next_hello = now + ASK_EVERY_S
        if not self._known:
            self._unanswered.look(now)
        if self._known and now >= self._next_beat:
            self._next_beat = now + self._beat_every_s
            self._send_beat(self._make_beat(False))
        if self._health is not None:
            self._health.say(self._missing)

    def of_role(self, role: str) -> list[Peer]:
        """The living peers of one role, in order of their names."""
        return sorted((p for p in self.peers if p.role == role), key=lambda peer: peer.name)

    def take_best_mean(self) -> float | None:
        """The highest mean return that the monitor has told a trainer of since the last call."""
        means, self._best_means = self._best_means, []
        return max(means, default=None)

    def leave(self) -> None:
        """Send the last beat and close."""
        self._send_beat(self._make_beat(True), timeout_s=_GOODBYE_LINGER_S)
        self._client.close(linger_s=_GOODBYE_LINGER_S)

    def _missing(self) -> str:
        """What there is nothing to do without, in words; empty where nothing is missing."""
        assert self._health is not None
        silence_s = self._clock() - self._answered_at
        if silence_s > max(_SAY_UNANSWERED_AFTER_S, _BEATS_UNANSWERED * self._beat_every_s):
            return WAITS_FOR_MONITOR
        missing = (role for role in self._health.needs if not self.of_role(role))
        return next((f"a {role}" for role in missing), "")

    def _stop(self, reason: str) -> None:
        if self.stop_reason is None:
            _LOGGER.info("event=told_to_stop reason=%r", reason)
        self.stop_reason = reason or "stop"

    def _wait(self, reason: str) -> None:
        self._unanswered.answered()
        if self.generation >= 0:
            self._stop(reason)  # the name was this process's, and is another one's now
        elif not self._waits:
            self._waits = True
            _LOGGER.warning("event=name_is_taken reason=%r", reason)

    def _send_beat(self, beat: Beat, timeout_s: float = 0.0) -> None:
        if self._unsent is not None:
            # what ended since the beat before must not be lost with a beat that was not sent
            beat = _with_earlier_episodes(self._unsent, beat)
        beat = _with_newest_episodes(beat)
        self._unsent = None if self._client.send(beat, timeout_s=timeout_s) else beat

    def _take(self, message: Message) -> None:
        self._answered_at = self._clock()
        if isinstance(message, Peers):
            self._known = True
            self._unanswered.answered()
            self.peers, self.generation = tuple(message.peers), message.generation
        elif isinstance(message, BeatReply):
            if message.generation != self.generation:
                self._known = False  # the monitor knows more: ask again
        elif isinstance(message, Directive):
            if message.action in ("stop", "leave"):
                self.run_is_over |= message.action == "stop"
                self._stop(message.reason)
            elif message.action == "wait":
                self._wait(message.reason)
            elif message.action == "hello":
                self._known = False
                self._next_hello = self._clock()
        elif isinstance(message, SaveBest):
            self._best_means.append(message.return_mean)
        elif isinstance(message, SetWorkers):
            self.workers = message.count
        elif isinstance(message, ErrorReply):
            say_refusal(self._refusals, "monitor", message)
        else:
            _LOGGER.warning("event=unexpected_message kind=%s", type(message).__name__)


def exit_status(stop: StopFlag, *, run_is_over: bool) -> int:
    """The status with which a role ends that has ended in order.

    0 only where the monitor said that the run is over: with any other the one who started the role
    knows that the run goes on without it.
    """
    return 0 if run_is_over else stop.exit_status


def say_refusal(said: set[str], by: str, refusal: ErrorReply) -> None:
    """Log why a peer has refused a message, once for each reason; `said` remembers them."""
    if refusal.reason not in said:
        said.add(refusal.reason)
        _LOGGER.warning(
            "event=message_refused by=%s reason=%s detail=%r", by, refusal.reason, refusal.detail
        )


def _with_earlier_episodes(earlier: Beat, beat: Beat) -> Beat:
    return replace(
        beat,
        episode_returns=[*earlier.episode_returns, *beat.episode_returns],
        episode_lengths=[*earlier.episode_lengths, *beat.episode_lengths],
    )


def _with_newest_episodes(beat: Beat) -> Beat:
    """The beat with what fits into a message; `episodes` among its counters counts them all."""
    if len(beat.episode_returns) <= MOST_EPISODES:
        return beat
    return replace(
        beat,
        episode_returns=beat.episode_returns[-MOST_EPISODES:],
        episode_lengths=beat.episode_lengths[-MOST_EPISODES:],
    )


class PeerLink:
    """A client of one peer that follows the peer through its restarts.

    Args:
        context: of the role.
        role: the peer's role.
        endpoint: the name of the peer's endpoint.
        index: which of several peers of that role, modulo their number.

    Attributes:
        client: of the peer's endpoint; None before there was a peer.
        peer: as the monitor named it when the client connected.
    """

    def __init__(self, context: RoleContext, role: str, endpoint: str, index: int = 0) -> None:
        self._context, self._role, self._endpoint, self._index = context, role, endpoint, index
        self._incarnation: str | None = None
        self._told: tuple[Peer, ...] | None = None
        self._there: list[str] = []
        self._passed_over = 0
        self.client: Client | None = None
        self.peer: Peer | None = None

    def follow(self, membership: Membership) -> bool:
        """Connect to the peer that the monitor names now; True when it is another one."""
        # by identity, not by generation: a monitor that was started again counts from 0 again
        if membership.peers is self._told:
            return False
        self._told = membership.peers
        peers = [p for p in membership.of_role(self._role) if self._endpoint in p.endpoints]
        if not peers:
            return False  # keep the old connection: the peer may live although the monitor is new
        there = [p.incarnation for p in peers]
        if there != self._there:
            # who was passed over may be another one now, or gone: everybody to his own again
            self._there, self._passed_over = there, 0
        peer = peers[(self._index + self._passed_over) % len(peers)]
        if peer.incarnation == self._incarnation:
            return False
        if self.client is not None:
            self.client.close()
        self._incarnation = peer.incarnation
        self.peer = peer
        self.client = self._context.connect(peer.endpoints[self._endpoint])
        _LOGGER.info("event=connected role=%s name=%s", self._role, peer.name)
        return True

    def pass_over(self) -> None:
        """Let `follow` take the next peer of the role, until others of them are there."""
        self._passed_over += 1
        self._told = None
