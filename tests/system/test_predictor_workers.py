"""A predictor process whose number of workers changes; the test is its monitor and trainer."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from itertools import pairwise

import numpy as np
import psutil
import pytest

from aclearn.config import load_config
from aclearn.control import SetWorkers, StopRole
from aclearn.wire import (
    ActReply,
    ActRequest,
    Client,
    DirectiveAck,
    DirectiveMessage,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Peer,
    Peers,
    Weights,
)
from services.policy.factory import architecture_of
from services.role.context import RoleContext, RunEnv
from tests.support.system import CARTPOLE, Run, System
from tests.support.waiting import patience, wait_for

_CLIENTS, _OUT = 16, 2
#: Much longer than an actor waits before it asks again, and than the predictor keeps a request: a
#: request asked again was lost, neither answered nor counted as dropped.
_ASK_AGAIN_S = 60.0
#: Promised time for a change of the number of workers.
_CHANGE_WITHIN_S = 1.0


def _offset(version: int) -> float:
    """The weights of a version give the logits [0, offset]; neighbours are 4/1000 apart."""
    return (version % 1000) / 250 - 2


class Asking:
    """A client with several requests in flight."""

    def __init__(self, client: Client, index: int) -> None:
        self._client, self._rng = client, np.random.default_rng(index)
        self._out: dict[int, tuple[float, ActRequest]] = {}
        self._number = 0
        self.asked: Counter[int] = Counter()
        self.answers: list[tuple[int, ActReply]] = []
        self.goes_on = True

    @property
    def done(self) -> bool:
        return not self.goes_on and not self._out

    def step(self) -> None:
        now = time.monotonic()
        while self.goes_on and len(self._out) < _OUT:
            self._number += 1
            size = int(self._rng.integers(1, 4))
            observations = self._rng.normal(size=(size, 4)).astype(np.float32)
            self._out[self._number] = (
                -math.inf,
                ActRequest(self._number, {"observation": observations}),
            )
        for number, (sent_at, request) in self._out.items():
            if now - sent_at > _ASK_AGAIN_S and self._client.send(request):
                self._out[number] = (now, request)
                self.asked[number] += 1
        while (envelope := self._client.receive(0.0)) is not None:
            reply = envelope.message
            assert isinstance(reply, ActReply), reply
            _, request = self._out.pop(reply.request, (0.0, None))
            self.answers.append((-1 if request is None else request.size, reply))


class Surroundings:
    """A monitor and a trainer with newer weights."""

    def __init__(self, system: System) -> None:
        path = system.config(CARTPOLE, predictor={"max_batch": 8, "min_batch": 2})
        self.config = load_config(path)
        self.monitor_address = f"ipc://{system.sockets}/m"
        self.context = self._role("monitor", 0)
        accepts = (Hello, Heartbeat, DirectiveAck)
        self._monitor = self.context.serve_at(self.context.run.monitor, accepts)
        self._weights, endpoint = self.context.serve("weights")
        self._trainer = Peer(
            "trainer", "trainer-0", self.context.incarnation, {"weights": endpoint}
        )
        shapes = architecture_of(self.config).tensor_shapes().items()
        self._zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes}
        self._address = b""
        self.version = 0
        self.endpoint: str | None = None
        self.heartbeat: Heartbeat | None = None
        self.refusals: list[str] = []
        self.clients: list[Asking] = []
        self._contexts = [self.context]
        self.run: Run = system.role(
            "predictor", path, self.monitor_address, "--name", "predictor-0"
        )

    def _role(self, role: str, index: int) -> RoleContext:
        return RoleContext(role, index, self.config, RunEnv(self.monitor_address))

    def add_client(self) -> None:
        context = self._role("actor", len(self.clients))
        self._contexts.append(context)
        self.clients.append(Asking(context.connect(self.endpoint), len(self.clients)))

    def tell(self, message) -> None:
        assert self._monitor.send(self._address, message)

    def step(self) -> None:
        """Answer the predictor and step every client."""
        for address, envelope in self._monitor.receive(0.002):
            if isinstance(envelope.message, Hello):
                self._address = address
                self.endpoint = envelope.message.endpoints["predictions"]
                self.tell(Peers(1, [self._trainer]))
            elif isinstance(envelope.message, DirectiveAck):
                self.refusals += [each] if (each := envelope.message.refusal) else []
            elif isinstance(envelope.message, Heartbeat):
                self.heartbeat = envelope.message
                # a process that sent its last heartbeat may be gone
                self._monitor.send(address, HeartbeatReply(1))
        for address, _ in self._weights.receive(0.0):
            self.version += 1
            bias = np.array([0.0, _offset(self.version)], np.float32)
            self._weights.send(
                address, Weights(0, self.version, {**self._zeros, "policy.bias": bias})
            )
        for client in self.clients:
            client.step()

    def until(self, condition, what: str) -> None:
        def look() -> bool:
            self.step()
            assert self.run.process.poll() is None, self.run.output
            return condition()

        wait_for(look, what, context=lambda: self.run.output, pause_s=0.0)

    def answered(self) -> int:
        return sum(len(client.answers) for client in self.clients)

    def threads(self) -> int:
        return psutil.Process(self.run.process.pid).num_threads()

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def surroundings(system: System):
    surroundings = Surroundings(system)
    yield surroundings
    surroundings.close()


def test_counts_change_while_requests_and_weights_come_and_nothing_is_lost(surroundings) -> None:
    around = surroundings
    around.until(lambda: around.endpoint is not None, "the predictor says hello")
    for _ in range(_CLIENTS):
        around.add_client()

    def answer_some(count: int = 300) -> None:
        enough = around.answered() + count
        around.until(lambda: around.answered() >= enough, "requests are answered")

    answer_some()
    alone = around.threads()
    took_s: dict[str, list[float]] = {"more": [], "fewer": []}
    for before, count in pairwise((1, 4, 2, 3, 1, 2, 1)):
        told_at = time.monotonic()
        around.tell(SetWorkers(count).message())
        around.until(
            lambda count=count: around.threads() == alone + count - 1, f"{count} workers run"
        )
        took_s["more" if count > before else "fewer"].append(time.monotonic() - told_at)
        around.until(lambda count=count: around.heartbeat.gauges["workers"] == count, "it says so")
        answer_some()
    # the median: a machine that stalls for a second is not the pool's fault
    for times_s in took_s.values():
        assert statistics.median(times_s) <= _CHANGE_WITHIN_S * patience(), took_s
    for count in (0, 65):
        around.tell(DirectiveMessage(1, "SetWorkers", {"count": count}))
    around.until(lambda: len(around.refusals) == 2, "both counts are refused")
    assert "expected an int from 1 to 64" in around.refusals[0]
    assert around.heartbeat.gauges["workers"] == 1
    answer_some()

    # a slow machine gets weights less often
    around.until(lambda: around.version >= 4, "weights come several times")
    answer_some()
    for client in around.clients:
        client.goes_on = False
    around.until(lambda: all(client.done for client in around.clients), "the last answers come")
    versions = set()
    for client in around.clients:
        received = Counter(reply.request for _, reply in client.answers)
        assert received.keys() == client.asked.keys()
        assert set(received.values()) == {1}  # and none twice
        for size, reply in client.answers:
            assert size == len(reply.actions)
            versions.add(reply.version)
            assert 1 <= reply.version <= around.version
            offset = _offset(reply.version)
            expected = -np.log1p(np.exp(np.where(reply.actions == 1, -offset, offset)))
            assert reply.log_prob == pytest.approx(expected, abs=2e-6)
    assert len(versions) > 1

    around.tell(StopRole("enough").message())
    # the predictor leaves with its last heartbeat
    wait_for(lambda: around.step() or around.heartbeat.final, "the last heartbeat", context=str)
    counters = around.heartbeat.counters
    # requests asked again were late: the machine stalled for seconds
    again = sum(client.asked.total() for client in around.clients) - around.answered()
    assert again == counters["requests_expired"]
    assert counters["predictions"] == sum(
        len(reply.actions) for client in around.clients for _, reply in client.answers
    )
    for name in ("worker_failures", "requests_dropped.worker_failed", "queue_full"):
        assert counters[name] == 0, counters
    assert around.heartbeat.gauges["refused_messages"] == 0, counters
    assert 0 <= around.heartbeat.gauges["queue_fill"] <= 1
    assert 0 < around.heartbeat.gauges["wait_ms_p50"] <= around.heartbeat.gauges["wait_ms_p99"]
    assert around.run.wait(within_s=20.0) == 0, around.run.output
