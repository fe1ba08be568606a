"""A compressor's role with real sockets: it attends to others while it compresses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from aclearn.config import config_of_keys
from aclearn.control.directives import SetChain, StopRole
from aclearn.envs import read_spec
from aclearn.wire import (
    ArtifactReply,
    ArtifactRequest,
    DirectiveAck,
    Envelope,
    Heartbeat,
    HeartbeatReply,
    Hello,
    NoNewerWeights,
    Peer,
    Peers,
    Server,
    Weights,
    WeightsRequest,
)
from services.compressor.main import make_compressor
from services.policy.factory import architecture_of
from services.role.context import RoleContext, RunEnv
from services.wiring import ENDPOINTS
from tests.support.compressors import some_tensors
from tests.support.slow_link import Slow
from tests.support.waiting import wait_for


class Others:
    """A monitor, a trainer and an actor of one compressor, whose role is stepped in a thread."""

    def __init__(self, roles: Any) -> None:
        Slow.begun.clear()
        Slow.released.clear()
        self.config = config_of_keys(
            {
                "run.name": "run-1",
                "env.id": "CartPole-v1",
                "policy.hidden": [4],
                "monitor.heartbeat_every_s": 0.05,
                "compressor.every_s": 0.0,
                "compressor.cpu_share": 1.0,
                "compressor.ladder": [["tests.support.slow_link:Slow", "onnx"], ["onnx"]],
            }
        )
        spec = read_spec(self.config.env)
        self.version = 1
        self.tensors = some_tensors(architecture_of(self.config, spec).acting(), 1)
        self._monitor: Server = roles("monitor-0").serve_at(
            roles.monitor, ENDPOINTS["monitor"].accepts
        )
        self._trainer, weights = roles("trainer-0").serve("weights")
        peer = Peer("trainer", "trainer-0", "t", {"weights": weights}, 0)
        self._peers, self._member = Peers(1, [peer]), b""
        self.heard: list[Any] = []
        context = RoleContext("compressor", 0, self.config, RunEnv(roles.monitor, None, spec))
        self._role = make_compressor(context)
        self.context, self.ended = context, threading.Event()
        self._thread = threading.Thread(target=self._step)
        self._thread.start()

    def _step(self) -> None:
        try:
            while self._role.step(0.01):
                pass
        finally:
            self._role.close()
            self.context.close()
            self.ended.set()

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Answer the compressor until the condition holds."""

        def met() -> Any:
            for routing_id, envelope in self._monitor.receive(0.01):
                self._take(routing_id, envelope)
            for routing_id, envelope in self._trainer.receive(0.0):
                reply: Any = NoNewerWeights()
                request = envelope.message
                if isinstance(request, WeightsRequest) and request.version < self.version:
                    reply = Weights(0, self.version, self.tensors)
                self._trainer.send(routing_id, reply)
            return condition()

        wait_for(met, what, pause_s=0.0)

    def _take(self, routing_id: bytes, envelope: Envelope) -> None:
        self._member = routing_id
        self.heard.append(envelope.message)
        if isinstance(envelope.message, Hello):
            self._monitor.send(routing_id, self._peers)
        elif isinstance(envelope.message, Heartbeat):
            self._monitor.send(routing_id, HeartbeatReply(1))

    def heartbeats(self) -> list[Heartbeat]:
        """Those so far."""
        return [message for message in self.heard if isinstance(message, Heartbeat)]

    def direct(self, payload: Any) -> None:
        """Send a directive, as the monitor does."""
        self._monitor.send(self._member, payload.message(1))

    def endpoint(self) -> str:
        """Of the compressor's artifacts."""
        [hello, *_] = [message for message in self.heard if isinstance(message, Hello)]
        return str(hello.endpoints["artifacts"])

    def close(self) -> None:
        Slow.released.set()
        self.context.stop.set("SIGTERM")
        self.until(self.ended.is_set, "the role ends")
        self._thread.join()


@pytest.fixture
def others(roles: Any) -> Iterator[Others]:
    made = Others(roles)
    yield made
    made.close()


def test_within_a_long_compression_heartbeats_go_on_and_requests_are_answered(
    others: Others, roles: Any
) -> None:
    others.until(Slow.begun.is_set, "it compresses")
    before = len(others.heartbeats())
    actor = roles("actor-0").connect(others.endpoint())
    actor.send(ArtifactRequest(-1, -1), timeout_s=1.0)
    answers: list[Any] = []

    def answered() -> bool:
        answers.extend(each for each in [actor.receive(0.0)] if each is not None)
        return len(others.heartbeats()) > before + 3 and bool(answers)

    others.until(answered, "three heartbeats and an answer")
    assert isinstance(answers[0].message, NoNewerWeights)  # the first version is not done
    assert {each.counters["artifacts"] for each in others.heartbeats()} == {0}
    Slow.released.set()
    others.until(lambda: others.heartbeats()[-1].counters["artifacts"] == 1, "an artifact")
    actor.send(ArtifactRequest(-1, -1), timeout_s=1.0)
    others.until(lambda: isinstance((actor.receive(0.0) or answers[0]).message, ArtifactReply), "")


def test_a_rung_that_is_set_within_a_compression_compresses_the_same_weights_again(
    others: Others,
) -> None:
    others.until(Slow.begun.is_set, "it compresses")
    others.direct(SetChain(1))
    others.until(lambda: DirectiveAck(1) in others.heard, "it is acknowledged")
    Slow.released.set()
    others.until(lambda: others.heartbeats()[-1].counters["artifacts"] == 2, "two artifacts")
    gauges = others.heartbeats()[-1].gauges
    assert (gauges["rung"], gauges["compressed"], gauges["artifact_version"]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("by", ["the monitor", "a signal"])
def test_a_compression_ends_with_the_run(others: Others, by: str) -> None:
    others.until(Slow.begun.is_set, "it compresses")
    if by == "the monitor":
        others.direct(StopRole("over"))
    else:
        others.context.stop.set("SIGTERM")
    others.until(others.ended.is_set, "the role ends")
    assert not Slow.released.is_set() and others.heartbeats()[-1].final
