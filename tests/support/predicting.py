"""Requests to a predictor, and a served predictor."""

from __future__ import annotations

import time

import numpy as np

from aclearn.rollout import PolicySnapshot
from aclearn.types import (
    OBSERVATION,
    PolicyVersion,
)
from aclearn.wire import ActRequest
from compress import OnnxRuntime
from services.predictor.prediction_queue import Pending, PredictionQueue
from services.predictor.server import PredictorServer, Served
from tests.support.acting import Acting


def act_request(size: int, number: int = 1, seed: int = 0) -> ActRequest:
    rng = np.random.default_rng(seed)
    return ActRequest(number, {OBSERVATION: rng.normal(size=(size, 3)).astype(np.float32)})


def pending_of(sizes: list[int]) -> list[Pending]:
    return [
        Pending(b"actor-%d" % i, act_request(size, number=100 + i, seed=i), 0.0, 1.0)
        for i, size in enumerate(sizes)
    ]


def snapshot_of(tools, at: PolicyVersion) -> PolicySnapshot:
    rng = np.random.default_rng(7)
    runtime = Acting(OnnxRuntime(tools.flat))
    shapes = tools.flat.tensor_shapes().items()
    runtime.load({name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes})
    return PolicySnapshot(runtime.executable, at, "some-chain")


class Serving:
    """A predictor on a real socket, and its actors."""

    def __init__(self, roles, tools) -> None:
        self.tools, self.roles = tools, roles
        self.server, self.endpoint = roles("predictor-0").serve("predictions", array_bytes=1 << 20)
        self.acting: PolicySnapshot | None = snapshot_of(tools, PolicyVersion(3, 40))
        self.predictor: PredictorServer | None = None

    def start(
        self,
        *,
        max_batch: int = 8,
        max_requests: int = 100,
        workers: int = 1,
        clock=time.monotonic,
        inline: bool = False,
    ) -> Serving:
        self.queue = PredictionQueue(max_requests=max_requests, max_batch=max_batch, clock=clock)
        self.predictor = PredictorServer(
            self.server,
            self.queue,
            {"default": Served(lambda: self.acting, self.tools.flat, most_rows=64)},
            generator=lambda worker: np.random.default_rng((1, worker)),
            clock=clock,
            inline=inline,
        )
        if workers:
            self.predictor.resize(workers)
        return self

    def actor(self, number: int):
        client = self.roles(f"actor-{number}").connect(self.endpoint)
        self.tools.wait_until(lambda: client.transport.wait_for_room(0.1), "the actor is connected")
        return client

    def until(self, condition, what: str) -> None:
        def serve_and_look() -> bool:
            self.predictor.step(0.02)
            return condition()

        self.tools.wait_until(serve_and_look, what)

    def reply_to(self, client):
        answers = []

        def there() -> bool:
            answers.append(client.receive(0.0))
            return answers[-1] is not None

        self.until(there, "the predictor answers")
        return answers[-1].message

    def counter(self, name: str) -> int:
        return self.predictor.heartbeat({}).counters[name]
