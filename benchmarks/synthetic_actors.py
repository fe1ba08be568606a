"""Actors without environments: real sockets and messages, hundreds of them in one thread.

Each joins with a number from the monitor, sends heartbeats at the interval that it is told, asks
the trainer for newer weights as often as an actor that never waits, and sends unrolls at a given
rate, one at a time. `benchmarks/scale.py` runs them.
"""

from __future__ import annotations

import heapq
import itertools
import select
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import zmq

from aclearn.config import Config
from aclearn.types import EnvSpec, EpisodeCohort, Unroll
from aclearn.wire import (
    Client,
    DirectiveAck,
    DirectiveMessage,
    Envelope,
    Heartbeat,
    HeartbeatReply,
    Hello,
    MembershipReply,
    NoNewerWeights,
    Number,
    NumberRequest,
    Peers,
    UnrollReply,
    Weights,
    WeightsRequest,
)
from services.policy.client import ASK_EVERY_S
from services.role.context import RoleContext, RunEnv

#: Seconds between two attempts of what has no answer, as of `MonitorClient`.
_AGAIN_S = 0.5
#: ZeroMQ's bound of the sockets of a context, which is 1023 by itself.
_MOST_SOCKETS = 1 << 16
_LEAVES_WITHIN_S = 1.0
#: Longest wait until a condition is looked at.
_LOOK_EVERY_S = 0.1


@dataclass
class Traffic:
    """What the actors of one process have sent and received.

    Attributes:
        counts: heartbeats, pulls (answers to requests for weights), versions (those with weights)
            and unrolls (acknowledged); bytes to and from the monitor and the trainer.
        waits: seconds from a heartbeat, a request for weights or an unroll to its answer.
    """

    counts: Counter[str] = field(default_factory=Counter)
    waits: dict[str, list[float]] = field(
        default_factory=lambda: {"heartbeat": [], "pull": [], "unroll": []}
    )

    def clear(self) -> None:
        """Begin again."""
        self.counts.clear()
        for waits in self.waits.values():
            waits.clear()


class _Counted(Client):
    """A client that counts the bytes of its messages, without ZeroMQ's own."""

    traffic: Traffic
    peer: str

    def _transmit(self, parts: Sequence[Any]) -> bool:
        sent = super()._transmit(parts)
        if sent:
            self.traffic.counts[f"{self.peer}_bytes"] += sum(map(len, parts))
        return sent

    def _open(self, frames: Sequence[Any], key: Any = None) -> Envelope:
        self.traffic.counts[f"{self.peer}_bytes"] += sum(map(len, frames))
        return super()._open(frames, key)


class Herd:
    """Synthetic actors of one process.

    Args:
        config: of the run; its sizes are those of the unrolls.
        monitor: the monitor's address.
        spec: of an environment with one flat observation and two actions, such as CartPole.
        unrolls_per_s: of each actor.

    Attributes:
        pulls, unrolls: whether the actors ask for weights, and send unrolls.
        most: unrolls of each actor; None for no end.
    """

    def __init__(
        self, config: Config, monitor: str, spec: EnvSpec, *, unrolls_per_s: float
    ) -> None:
        self._zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._zmq.set(zmq.MAX_SOCKETS, _MOST_SOCKETS)
        self.config, self.address, self.every_s = config, monitor, 1.0 / unrolls_per_s
        self._run = RunEnv(monitor, env_spec=spec)
        self.unroll = _unroll(config, spec)
        self.hello = self._context().hello({})
        self.traffic = Traffic()
        self.actors: list[SyntheticActor] = []
        self.pulls = self.unrolls = True
        self.most: int | None = None
        self.rng = np.random.default_rng(1)
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._poll = select.epoll()
        self._readers: dict[int, Callable[[], None]] = {}

    def grow(self, count: int) -> None:
        """Let so many more actors join."""
        for _ in range(count):
            self.actors.append(SyntheticActor(self, self._context()))

    def run(self, until: Callable[[], bool], within_s: float) -> bool:
        """Run the actors until a condition holds; whether it did within the time."""
        end = time.monotonic() + within_s
        while not until():
            now = time.monotonic()
            if now >= end:
                return False
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()
            next_s = min(self._timers[0][0] if self._timers else end, end) - time.monotonic()
            for descriptor, _ in self._poll.poll(min(max(0.0, next_s), _LOOK_EVERY_S)):
                self._readers[descriptor]()
        return True

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` at a time of the monotonic clock."""
        heapq.heappush(self._timers, (when, next(self._order), act))

    def connect(
        self, context: RoleContext, endpoint: str, peer: str, take: Callable[[Envelope], None]
    ) -> _Counted:
        """A client whose messages `take` gets."""
        plain = context.connect(endpoint)
        client = _Counted(plain.transport, context.run_name, context.incarnation)
        client.traffic, client.peer = self.traffic, peer
        socket = client.transport.pollable
        assert socket is not None
        descriptor = int(socket.getsockopt(zmq.FD))
        self._readers[descriptor] = lambda: drain(client, take)
        self._poll.register(descriptor, select.EPOLLIN)
        return client

    def close(self) -> None:
        """Let every actor leave in order, and close all sockets."""
        for actor in self.actors:
            actor.leave()
        self._poll.close()
        self._zmq.term()

    def _context(self) -> RoleContext:
        return RoleContext("actor", 0, self.config, self._run, zmq_context=self._zmq)


def drain(client: Client, take: Callable[[Envelope], None]) -> None:
    """Take all waiting messages. Needed after each sending too: it may consume their signal."""
    while (envelope := client.receive(0.0)) is not None:
        take(envelope)


class SyntheticActor:
    """One actor: a member of the run that plays nothing."""

    def __init__(self, herd: Herd, context: RoleContext) -> None:
        self._herd, self._context = herd, context
        self.number: int | None = None
        self.joined = self.told_to_stop = False
        self.revision = -1
        self.steps = self.made = self.acknowledged = 0
        self.at = (-1, -1)
        self._generation: int | None = None
        self._began, self._told_s = time.monotonic(), 0.0
        self._heartbeat_at = self._pull_at = self._unroll_at = 0.0
        self._pulling = self._in_flight = False
        self._weights: _Counted | None = None
        self._unrolls: _Counted | None = None
        self._monitor = herd.connect(context, herd.address, "monitor", self._of_monitor)
        self._join()

    @property
    def connected(self) -> bool:
        """Whether it has the weights of a trainer."""
        return self.at[0] >= 0

    def leave(self) -> None:
        """Send the last heartbeat, and close the sockets."""
        if self.joined:
            self._monitor.send(self._heartbeat(final=True), timeout_s=_LEAVES_WITHIN_S)
        for client in filter(None, (self._monitor, self._weights, self._unrolls)):
            client.close(linger_s=_LEAVES_WITHIN_S)

    def _join(self) -> None:
        """Ask for a number, then say hello, until both are answered."""
        if self.joined:
            return
        if self.number is None:
            self._tell(NumberRequest("actor"))
        else:
            self._tell(replace(self._herd.hello, number=self.number))
        self._herd.at(time.monotonic() + _AGAIN_S, self._join)

    def _tell(self, message: NumberRequest | Hello | Heartbeat) -> bool:
        sent = self._monitor.send(message)
        drain(self._monitor, self._of_monitor)
        return sent

    def _of_monitor(self, envelope: Envelope) -> None:
        message = envelope.message
        if isinstance(message, HeartbeatReply):
            self._herd.traffic.counts["heartbeats"] += 1
            wait_s = time.monotonic() - self._heartbeat_at
            self._herd.traffic.waits["heartbeat"].append(wait_s)
            self._told_s = message.every_s
            self._herd.at(self._heartbeat_at + self._every_s, self._beat)
        elif isinstance(message, Number):
            if self.number is None:
                self.number = message.number
                self._tell(replace(self._herd.hello, number=self.number))
        elif isinstance(message, Peers):
            self._meet(message)
        elif isinstance(message, DirectiveMessage):
            self.told_to_stop |= message.kind == "StopRole"
            self._monitor.send(DirectiveAck(message.id))
        elif isinstance(message, MembershipReply):
            if message.action == "hello":
                self.joined = False
                self._join()
            else:
                raise RuntimeError(f"{message.action}: {message.reason}")
        else:
            raise RuntimeError(f"the monitor said {message}")

    def _meet(self, peers: Peers) -> None:
        if not self.joined:
            self.joined = True
            self._herd.at(time.monotonic() + self._part(self._every_s), self._beat)
        self.revision = peers.revision
        trainer = next((p for p in peers.peers if "weights" in p.endpoints), None)
        if trainer is None or self._weights is not None:
            return
        self._generation = trainer.generation
        connect, endpoints = self._herd.connect, trainer.endpoints
        self._weights = connect(self._context, endpoints["weights"], "trainer", self._of_weights)
        self._unrolls = connect(self._context, endpoints["unrolls"], "trainer", self._of_unrolls)
        now = time.monotonic()
        self._herd.at(now + self._part(_AGAIN_S), self._pull)
        self._herd.at(now + self._part(self._herd.every_s), self._ship)

    @property
    def _every_s(self) -> float:
        return max(self._herd.config.monitor.heartbeat_every_s, self._told_s)

    def _part(self, seconds: float) -> float:
        """Actors are not in step: a random part of the time."""
        return float(self._herd.rng.uniform(0.0, seconds))

    def _beat(self) -> None:
        if not self.joined:
            return
        self._heartbeat_at = time.monotonic()
        if not self._tell(self._heartbeat()):
            self._herd.at(self._heartbeat_at + self._every_s, self._beat)

    def _pull(self) -> None:
        assert self._weights is not None
        now = time.monotonic()
        if self._herd.pulls and not self._pulling:
            self._pull_at = now
            self._pulling = self._weights.send(WeightsRequest(*self.at))
        if not self._pulling:
            self._herd.at(now + _AGAIN_S, self._pull)
        drain(self._weights, self._of_weights)

    def _of_weights(self, envelope: Envelope) -> None:
        message, counts = envelope.message, self._herd.traffic.counts
        if not isinstance(message, Weights | NoNewerWeights):
            raise RuntimeError(f"the trainer said {message}")
        now, self._pulling = time.monotonic(), False
        if isinstance(message, Weights):
            counts["versions"] += 1
            self.at = message.generation, message.version
        counts["pulls"] += 1
        self._herd.traffic.waits["pull"].append(now - self._pull_at)
        self._herd.at(now + max(ASK_EVERY_S, message.pause_s), self._pull)

    def _ship(self) -> None:
        assert self._unrolls is not None and self._generation is not None
        now = time.monotonic()
        self._herd.at(now + self._herd.every_s, self._ship)
        ended = self.made == self._herd.most or not self._herd.unrolls
        if self.connected and not self._in_flight and not ended:
            unroll, before = self._herd.unroll, self.steps
            after = before + unroll.valid.size
            versions = np.full(len(unroll.versions), self.at[1])
            mine = replace(
                unroll,
                generation=self._generation,
                env_steps_before=before,
                env_steps_after=after,
                versions=versions,
                actor=self.number or 0,
            )
            self._unroll_at = now
            if self._unrolls.send(mine, sequence=self.made):
                self._in_flight, self.steps, self.made = True, after, self.made + 1
        drain(self._unrolls, self._of_unrolls)

    def _of_unrolls(self, envelope: Envelope) -> None:
        message = envelope.message
        if not isinstance(message, UnrollReply) or not message.accepted:
            raise RuntimeError(f"the trainer said {message}")
        self._in_flight, self.acknowledged = False, self.acknowledged + 1
        self._herd.traffic.counts["unrolls"] += 1
        self._herd.traffic.waits["unroll"].append(time.monotonic() - self._unroll_at)

    def _heartbeat(self, *, final: bool = False) -> Heartbeat:
        beat = heartbeat_at(
            time.monotonic() - self._began,
            steps=self.steps,
            in_flight_unrolls=float(self._in_flight),
            policy_swaps=float(self.at[1]),
        )
        return replace(beat, final=final)


def heartbeat_at(clock_s: float, *, steps: int, **gauges: float) -> Heartbeat:
    """A heartbeat as large as that of an actor of CartPole."""
    shares = {"emulator": 0.4, "actions": 0.1, "training queue": 0.2}
    parts = ("emulator", "inference", "swap", "encode", "wire", "waiting for training queue")
    others = ("env_faults", "refused_unrolls", "repeated_unrolls", "policy_refused")
    return Heartbeat(
        counters={"env_steps": steps, "episodes": 0, "predictions": steps},
        gauges={**dict.fromkeys(others, 0.0), "state_restarts": 0.0, **gauges},
        waits={label: share * clock_s for label, share in shares.items()} | {"total": clock_s},
        parts={part: clock_s / len(parts) for part in parts} | {"total": clock_s},
        episode_returns=[200.0],
        episode_policies=["original"],
        cohorts=[EpisodeCohort(max(0.0, clock_s - 5.0), 1, 200.0, 200)],
        settled_s=max(0.0, clock_s - 4.0),
        clock_s=clock_s,
    )


def _unroll(config: Config, spec: EnvSpec) -> Unroll:
    """An unroll of zeros, whose actions were chosen with a probability of one half."""
    T, B = config.actors.unroll_length, config.actors.envs_per_group
    [(name, leaf)] = spec.observation.leaves.items()
    no = np.zeros((T, B), np.bool_)
    return Unroll(
        generation=0,
        env_steps_before=0,
        env_steps_after=0,
        dropped={},
        observations={name: np.zeros((T + 1, B, *leaf.shape), np.float32)},
        history={},
        reset_index=None,
        reset_history={},
        actions=np.zeros((T, B), np.int32),
        behaviour_log_prob=np.full((T, B), np.log(0.5), np.float32),
        rewards=np.ones((T, B), np.float32),
        terminated=no,
        truncated=no,
        valid=~no,
        versions=np.zeros(T, np.int64),
        chains=["none"],
    )
