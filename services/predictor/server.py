"""The predictor's sockets: act requests in, actions by the newest weights out.

The main thread owns the sockets: it admits requests to the prediction queue, swaps policies and
sends replies. N_P workers take batches from the queue. In a process each has its own thread: the
network runs outside Python's lock, so they compute in parallel.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from aclearn.config import Config
from aclearn.distributions import distribution_of
from aclearn.errors import WireError
from aclearn.policies import Architecture
from aclearn.rollout import PolicySnapshot
from aclearn.telemetry import WaitMeter
from aclearn.types import ActionSpec, ObservationSpec, UnrollSpec
from aclearn.types.bounds import LARGEST_NUMBER
from aclearn.wire import ActCancel, ActRequest, Envelope, Heartbeat, Server
from services.predictor.core import make_step
from services.predictor.outbox import Outbox
from services.predictor.prediction_queue import Pending, PredictionQueue
from services.role.metrics import RoleMetrics
from services.role.worker_pool import WORKER_WAITS_S, Step, WorkerPool
from services.roles import ACTOR

_LOGGER = logging.getLogger(__name__)

#: Seconds that a request stays after its actor's deadline: a repeated request keeps its place, and
#: only those of actors that have left are dropped.
_ASKED_AGAIN_WITHIN_S = 1.0
#: Longest deadline of a request: waiting requests take room in the queue.
_MOST_WITHIN_S = 60.0
#: Least bound of the prediction queue, in requests.
_LEAST_BOUND = 256
#: Newest requests in the gauges of waiting times.
_RECENT = 1000
#: Seconds for the workers' last batches.
_LAST_BATCH_WITHIN_S = 3.0


def request_bytes(spec: UnrollSpec) -> int:
    """Bytes of the arrays of the largest request: an actor asks for one group of environments."""
    row = sum(leaf.nbytes for leaf in spec.env.observation.values())
    row += 2 * sum(4 * math.prod(shape) for shape in spec.state)  # and one of the policy's own
    return spec.most_rows * (row + spec.env.action.mask_width + 4)  # and ε


def check_request(request: ActRequest, spec: ObservationSpec, most: int) -> None:
    """Raise `WireError` if the request does not fit the policy, or its deadline is invalid.

    Args:
        most: observations of a request.
    """
    if not 0.0 < request.within_s <= _MOST_WITHIN_S:
        raise WireError(
            "bad_request",
            f"within_s: expected more than 0 and at most {_MOST_WITHIN_S:g} seconds, got "
            f"{request.within_s:g}",
        )
    if list(request.observations) != list(spec):
        raise WireError(
            "bad_request",
            f"observations: expected the leaves {', '.join(spec)}, in this order, "
            f"got {len(request.observations)}",
        )
    if not 1 <= request.size <= most:
        raise WireError(
            "bad_request",
            f"observations: expected 1 to {most} (actors.envs_per_group), got {request.size}",
        )
    for name, leaf in spec.items():
        array = request.observations[name]
        # comparing dtypes by name takes 3 µs
        if array.shape != (request.size, *leaf.shape) or array.dtype != np.dtype(leaf.dtype):
            raise WireError(
                "bad_request",
                f"observations.{name}: expected {leaf.dtype} [B, {', '.join(map(str, leaf.shape))}]"
                f", got {array.dtype} {list(array.shape)}",
            )
        if leaf.dtype == "uint8":
            continue
        with np.errstate(invalid="ignore"):  # ∞ − ∞ gives an invalid sum, which is refused
            finite = np.isfinite(array.sum(dtype=np.float64))
        if not finite:
            raise WireError("bad_request", f"observations.{name}: not finite")


def check_state(request: ActRequest, sizes: Sequence[int]) -> None:
    """Raise `WireError` unless the request's states fit it, and `state` the policy's memory.

    Args:
        sizes: numbers of each part of the state, as `Architecture.state`.
    """
    found = [part.shape[1:] for part in request.state]
    if request.state and found != [(size,) for size in sizes]:
        expected = ", ".join(f"[B, {size}]" for size in sizes) or "none: the policy has no memory"
        raise WireError("bad_request", f"state: expected {expected}, got {found}")
    for part in (*request.state, *request.own_state):
        if len(part) != request.size or not (np.abs(part) <= LARGEST_NUMBER).all():
            raise WireError(
                "bad_request",
                f"state: expected {request.size} rows of numbers up to {LARGEST_NUMBER:g}, got "
                f"{list(part.shape)} or larger ones",
            )


def check_masks(request: ActRequest, action: ActionSpec) -> None:
    """Raise `WireError` unless the request's masks, if it has any, fit the actions."""
    if (masks := request.masks) is None:
        return
    shape = (request.size, action.mask_width)
    if not action.counts or masks.shape != shape or not action.allow_something(masks).all():
        raise WireError(
            "bad_request",
            f"masks: expected {list(shape)}, with a possible action in each row, got "
            f"{list(masks.shape)}",
        )


def check_epsilon(request: ActRequest, explores: bool) -> None:
    """Raise `WireError` unless the request has ε of each row, where this run explores by it."""
    epsilon = request.epsilon
    if explores != (epsilon is not None) or (
        epsilon is not None
        and (epsilon.shape != (request.size,) or not ((epsilon >= 0) & (epsilon <= 1)).all())
    ):
        expected = f"[{request.size}] between 0 and 1" if explores else "none"
        raise WireError("bad_request", f"epsilon: expected {expected} (loss.kind)")


def make_queue(config: Config, clock: Callable[[], float] = time.monotonic) -> PredictionQueue:
    """The prediction queue of one predictor process.

    Its bound has room for each of the most actors to restart once before its predecessor's requests
    have passed their deadline. Each group of environments asks for every policy.
    """
    actors, predictor = config.actors, config.predictor
    asking = ACTOR.most_processes(config) * actors.groups * len(config.policy_names())
    return PredictionQueue(
        max_requests=max(_LEAST_BOUND, 2 * asking),
        max_batch=predictor.max_batch,
        min_batch=predictor.min_batch,
        batch_timeout_s=predictor.batch_timeout_s,
        clock=clock,
    )


@dataclass(frozen=True)
class Served:
    """One of the policies that a predictor runs.

    Attributes:
        acting: gives the acting policy; None before the first.
        most_rows: observations of a request.
        explores: whether requests have an ε.
    """

    acting: Callable[[], PolicySnapshot | None]
    architecture: Architecture
    most_rows: int
    explores: bool = False

    def check(self, request: ActRequest) -> None:
        """Raise `WireError` if the request does not fit this policy, or its deadline is invalid."""
        architecture = self.architecture
        check_request(request, architecture.observation, self.most_rows)
        check_state(request, architecture.state)
        check_masks(request, architecture.action_spec)
        check_epsilon(request, self.explores)


class PredictorServer:
    """The socket side of the prediction queue, and the size of its workers' pool. For one thread.

    Args:
        served: the policies by name.
        generator: the random numbers of the nth worker, asked with its first batch.
        parameters: whether replies have the parameters of the behaviour policy.
        inline: workers have no threads and make their steps in `step`.

    Attributes:
        meter: time of the socket thread by part.
    """

    def __init__(
        self,
        server: Server,
        queue: PredictionQueue,
        served: Mapping[str, Served],
        *,
        generator: Callable[[int], np.random.Generator],
        parameters: bool = False,
        clock: Callable[[], float] = time.monotonic,
        inline: bool = False,
    ) -> None:
        self._server, self._queue, self._served = server, queue, served
        self._clock = clock
        self._outbox = Outbox()
        made = itertools.count()
        distributions = {
            policy: distribution_of(each.architecture.action_spec)
            for policy, each in served.items()
        }

        def make() -> Step:
            return make_step(
                queue,
                self._outbox,
                lambda policy: served[policy].acting(),
                distributions,
                partial(generator, next(made)),
                parameters=parameters,
                timeout_s=0.0 if inline else WORKER_WAITS_S,
            )

        self._workers = WorkerPool(make, name="predictor", inline=inline)
        self.meter = WaitMeter()
        self._metrics = RoleMetrics(self.meter, [server], self._workers)
        self._waits_s: deque[float] = deque(maxlen=_RECENT)
        self._predictions = self._batches = 0
        self._queue_full = self._cancelled = 0

    def step(self, timeout_s: float) -> None:
        """Admit received requests and send replies, waiting up to `timeout_s` for either.

        Raises:
            RuntimeError: the workers failed three times in a row; its cause is the last failure.
        """
        with self.meter.waiting("messages"):
            received = self._server.receive(timeout_s, wake=self._outbox.wake_fd)
        with self.meter.part("decode"):
            self._let_in(received)
        self._workers.step()
        with self.meter.part("encode"):
            self._send()

    def _let_in(self, received: list[tuple[bytes, Envelope]]) -> None:
        now = self._clock()
        requests: list[Pending] = []
        for routing_id, envelope in received:
            request = envelope.message
            if isinstance(request, ActCancel):
                requests = [p for p in requests if p.key != (routing_id, request.request)]
                self._queue.cancel(routing_id, request.request)
                self._cancelled += 1
                continue
            assert isinstance(request, ActRequest)  # the server accepts no other
            try:
                self._served[request.policy].check(request)
            except WireError as error:
                self._server.refuse(routing_id, error)
                continue
            deadline = now + request.within_s + _ASKED_AGAIN_WITHIN_S
            requests.append(Pending(routing_id, request, now, deadline))
        if requests:
            for pending in self._queue.offer(requests):
                self._queue_full += 1
                full = f"the prediction queue is full, {len(self._queue)} requests wait"
                self._server.refuse(pending.routing_id, WireError("queue_full", full))

    def resize(self, count: int) -> None:
        """Change the number of workers."""
        self._workers.resize(count)

    def close(self) -> None:
        """End the workers and send their last replies; waiting requests get none."""
        self._queue.close()
        if not self._workers.close(_LAST_BATCH_WITHIN_S):
            _LOGGER.error("event=worker_hangs what='a batch does not end'")
        self._send()
        self._outbox.close()

    def heartbeat(self, gauges: Mapping[str, float]) -> Heartbeat:
        """The predictor's numbers, with the gauges of its policy."""
        p50_s, p99_s = np.percentile(self._waits_s, [50, 99]) if self._waits_s else (0.0, 0.0)
        return self._metrics.heartbeat(
            counters={
                "predictions": self._predictions,
                "prediction_batches": self._batches,
                "requests_expired": self._queue.expired,
                "requests_dropped.worker_failed": self._queue.failed,
                "requests_cancelled": self._cancelled,
                "queue_full": self._queue_full,
            },
            gauges={
                "batch_mean": self._predictions / max(1, self._batches),
                "queue_fill": self._queue.fill,
                "wait_ms_p50": 1000 * float(p50_s),
                "wait_ms_p99": 1000 * float(p99_s),
                **gauges,
            },
        )

    def _send(self) -> None:
        for answered in self._outbox.take():
            for pending, reply in answered:
                self._server.send(pending.routing_id, reply)
                self._waits_s.append(self._clock() - pending.came_at)
                self._predictions += pending.size
            self._batches += 1
