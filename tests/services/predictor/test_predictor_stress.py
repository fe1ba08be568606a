"""Four workers, many clients and changing weights: each request has its own answer."""

from __future__ import annotations

import threading
import time
from collections import Counter

import numpy as np
import pytest

from aclearn.distributions import distribution_of
from aclearn.rollout import PolicySnapshot
from aclearn.types import ActionSpec, PolicyVersion
from aclearn.wire import ActReply, ActRequest
from compress import OnnxRuntime
from services.predictor import server as predictor_module
from services.predictor.prediction_queue import PredictionQueue
from services.predictor.server import PredictorServer, Served
from tests.support.acting import Acting
from tests.support.waiting import DEADLINE_S

_CLIENTS, _REQUESTS, _OUT = 12, 150, 3


def _tensors(tools, version: int) -> dict[str, np.ndarray]:
    """Weights whose logits are [0, v, 0, 0] for every observation, v by version."""
    shapes = tools.flat.tensor_shapes().items()
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes}
    tensors["policy.bias"][1] = _offset(version)
    return tensors


def _offset(version: int) -> float:
    return (version % 1000) / 250 - 2  # two neighbours are four thousandths apart


class Asking:
    """One client: keeps requests in flight until all are answered. Runs in its own thread."""

    def __init__(self, client, index: int) -> None:
        self._client, self._index = client, index
        self.answers: list[ActReply] = []
        self.sizes: dict[int, int] = {}
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._ask()
        except BaseException as error:
            self.failure = error

    def _ask(self) -> None:
        rng = np.random.default_rng(self._index)
        answered: set[int] = set()
        end = time.monotonic() + DEADLINE_S
        while len(answered) < _REQUESTS:
            assert time.monotonic() < end, f"{_REQUESTS - len(answered)} of them unanswered"
            while len(self.sizes) < _REQUESTS and len(self.sizes) - len(answered) < _OUT:
                number = len(self.sizes)
                self.sizes[number] = int(rng.integers(1, 5))
                observations = rng.normal(size=(self.sizes[number], 3)).astype(np.float32)
                assert self._client.send(
                    ActRequest(number, {"observation": observations}), timeout_s=10.0
                )
            envelope = self._client.receive(0.1)
            if envelope is not None:
                self.answers.append(envelope.message)
                answered.add(envelope.message.request)
        extra = self._client.receive(0.05)  # a surplus answer would have arrived by now
        assert extra is None, extra


def test_each_request_is_answered_once_by_the_policy_that_is_named(
    roles, tools, monkeypatch
) -> None:
    # no request is repeated here
    monkeypatch.setattr(predictor_module, "_ASKED_AGAIN_WITHIN_S", 600.0)
    server, endpoint = roles("predictor-0").serve("predictions", array_bytes=1 << 20)
    runtime, version = Acting(OnnxRuntime(tools.flat)), 0
    acting: PolicySnapshot | None = None

    def swap() -> None:
        nonlocal acting, version
        version += 1
        runtime.load(_tensors(tools, version))
        acting = PolicySnapshot(runtime.executable, PolicyVersion(1, version), f"chain-{version}")

    swap()
    queue = PredictionQueue(max_requests=1000, max_batch=6, min_batch=3, batch_timeout_s=0.002)
    predictor = PredictorServer(
        server,
        queue,
        {"default": Served(lambda: acting, tools.flat, most_rows=64)},
        generator=np.random.default_rng,
    )
    clients = [Asking(roles(f"actor-{i}").connect(endpoint), i) for i in range(_CLIENTS)]
    counts = (1, 4, 2, 1)
    predictor.resize(counts[0])
    for client in clients:
        client.thread.start()
    total = _CLIENTS * _REQUESTS
    try:
        while any(client.thread.is_alive() for client in clients):
            predictor.step(0.02)
            swap()
            done = sum(len(client.answers) for client in clients)
            predictor.resize(counts[min(len(counts) - 1, done * len(counts) // total)])
    finally:
        predictor.close()
    assert [client.failure for client in clients] == [None] * _CLIENTS
    heartbeat = predictor.heartbeat({})
    assert heartbeat.gauges["workers"] == 0  # closed
    assert heartbeat.counters["worker_failures"] == heartbeat.counters["requests_expired"] == 0
    assert heartbeat.counters["predictions"] == sum(sum(c.sizes.values()) for c in clients)
    versions = Counter()
    for client in clients:
        assert Counter(reply.request for reply in client.answers) == Counter(client.sizes.keys())
        for reply in client.answers:
            versions[reply.version] += 1
            assert (reply.generation, reply.chain) == (1, f"chain-{reply.version}")
            assert len(reply.actions) == client.sizes[reply.request]
            logits = np.zeros((len(reply.actions), 4), np.float32)
            logits[:, 1] = _offset(reply.version)
            expected = distribution_of(ActionSpec.discrete(4)).log_prob(logits, reply.actions)
            assert reply.log_prob == pytest.approx(expected, abs=2e-6)
    # the neighbouring version would have been seen, and there were many
    assert len(versions) > 10
