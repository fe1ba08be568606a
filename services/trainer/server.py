"""The trainer's sockets: unrolls in, weights out, heartbeats to the monitor.

In a process they have their own thread, which answers at once, while a worker is busy for a whole
update.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from aclearn import wire
from aclearn.control.directives import SaveBest, SetWorkers
from aclearn.errors import WireError
from aclearn.learning import (
    RecentObservations,
    TrainingQueue,
    check_unroll,
    largest_unroll_bytes,
    too_old,
)
from aclearn.telemetry import WaitMeter
from aclearn.types import PolicyVersion, Unroll, UnrollSpec
from aclearn.wire import (
    Envelope,
    Heartbeat,
    NoNewerWeights,
    ObservationsRequest,
    UnrollReply,
    Weights,
    WeightsRequest,
)
from services.policy.shared_weights import SHARED_WEIGHTS
from services.role.context import RoleContext
from services.role.metrics import RoleMetrics
from services.role.seeds import Use
from services.role.worker_pool import WorkerPool
from services.trainer.trainer import Trainer

#: Most observations in a reply: about 14 MB of 84 × 84 × 4 images.
_MOST_OBSERVATIONS = 512
#: Longest wait of the thread; while the training queue is full, the delay until it sees free room.
_LOOK_EVERY_S = 0.05
_LOOK_EVERY_WHILE_FULL_S = 0.005


class TrainerServer:
    """Owns the sockets. One thread calls `step`: that of `start`, or the trainer's only one.

    It reads an unroll only if the training queue has room: that is the back-pressure, since actors
    wait for acknowledgements.

    Args:
        context: of the trainer.
        trainer: its account counts the unrolls, its published weights are sent.
        spec: of the unrolls that fit the run.
        queue: of the admitted unrolls.
        heartbeat_fields: called by `step`.
        save_best: called by `step` with a mean of returns above the best checkpoint's.
        workers: resized as the monitor directs; here, where no checkpoint delays it.
        shared_weights: their endpoint, if they are shared.

    Attributes:
        failure: the exception that ended the thread.
    """

    def __init__(
        self,
        context: RoleContext,
        trainer: Trainer,
        *,
        spec: UnrollSpec,
        queue: TrainingQueue[Unroll],
        heartbeat_fields: Callable[[], dict[str, Any]],
        save_best: Callable[[float], None],
        workers: WorkerPool,
        shared_weights: str | None = None,
    ) -> None:
        self._spec = spec
        self._max_lag = context.config.trainer.max_lag_versions
        self._account, self._queue, self._published = trainer.account, queue, trainer.published
        self._recent = RecentObservations(
            spec.env.observation,
            seed=context.seeds(trainer.generation).number(Use.OBSERVATIONS),
        )
        self._heartbeat_fields = heartbeat_fields
        # bound here, so that a bad address fails the start
        self._unrolls, unrolls = context.serve(
            "unrolls", array_bytes=largest_unroll_bytes(self._spec)
        )
        self._weights, weights = context.serve("weights")
        endpoints = {"unrolls": unrolls, "weights": weights}
        if shared_weights is not None:
            endpoints[SHARED_WEIGHTS] = shared_weights
        self._meter = WaitMeter()
        self._metrics = RoleMetrics(self._meter, [self._unrolls, self._weights], workers)
        self._monitor = context.join(
            self.heartbeat,
            endpoints,
            on={
                SaveBest: lambda best: save_best(best.return_mean),
                SetWorkers: lambda wanted: workers.resize(wanted.count),
            },
            generation=trainer.generation,
        )
        answering = self._weights, self._monitor.channel
        self._while_full = wire.ChannelPoller(*answering)
        self._reading = wire.ChannelPoller(*answering, self._unrolls)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.failure: BaseException | None = None

    @property
    def stop_reason(self) -> str | None:
        """Why the monitor stops the trainer; None while it does not."""
        return self._monitor.stop_reason

    @property
    def exit_status(self) -> int:
        """As `MonitorClient.exit_status`."""
        return self._monitor.exit_status

    def start(self) -> None:
        """Start the thread; the sockets belong to it from now on."""
        self._thread = threading.Thread(target=self._run, name="trainer-sockets", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Send the last heartbeat, close the sockets, and end the thread, if any."""
        self._closing.set()
        if self._thread is None:
            self._leave()
        else:
            self._thread.join(timeout_s)

    def heartbeat(self) -> Heartbeat:
        """The trainer's heartbeat; for the socket thread."""
        fields = self._heartbeat_fields()
        fields["gauges"]["queue_fill"] = self._queue.fill
        return self._metrics.heartbeat(**fields)

    def step(self, timeout_s: float) -> None:
        """Answer received messages, waiting up to `timeout_s` for the first."""
        with self._meter.waiting("messages"):
            if self._queue.full:
                self._while_full.wait(min(timeout_s, _LOOK_EVERY_WHILE_FULL_S))
            else:
                self._reading.wait(timeout_s)
        with self._meter.part("wire"):
            for routing_id, envelope in self._weights.receive(0.0):
                self._answer_weights(routing_id, envelope)
        while not self._queue.full:
            with self._meter.part("decode"):
                received = self._unrolls.receive(0.0, limit=1)
                for routing_id, envelope in received:
                    self._take_unroll(routing_id, envelope)
            if not received:
                break
        with self._meter.part("wire"):
            self._monitor.tick()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self.step(_LOOK_EVERY_S)
            self._leave()
        except BaseException as error:
            self.failure = error
            raise

    def _leave(self) -> None:
        self._monitor.leave()
        self._unrolls.close()
        self._weights.close()

    def _answer_weights(self, routing_id: bytes, envelope: Envelope) -> None:
        request = envelope.message
        if isinstance(request, ObservationsRequest):
            visited = self._recent.sample(min(request.count, _MOST_OBSERVATIONS))
            answer = wire.RecentObservations(dict(visited.observations), visited.masks)
            self._weights.send(routing_id, answer)
            return
        assert isinstance(request, WeightsRequest)  # the server accepts no other
        known = PolicyVersion(request.generation, request.version)
        newer = self._published.newer_than(known)
        if newer is None:
            self._weights.send(routing_id, NoNewerWeights())
        else:
            message = Weights(newer.at.generation, newer.at.version, dict(newer.tensors))
            self._weights.send(routing_id, message)

    def _take_unroll(self, routing_id: bytes, envelope: Envelope) -> None:
        unroll = envelope.message
        assert isinstance(unroll, Unroll)  # the server accepts no other
        steps = int(np.count_nonzero(unroll.valid))
        try:
            check_unroll(unroll, self._spec)
            reason = too_old(unroll, self._published.at, max_lag_versions=self._max_lag)
        except WireError as error:
            self._unrolls.refuse(routing_id, error)
            reason = error.reason
        reason = self._account.admit(
            envelope.incarnation,
            envelope.sequence,
            unroll.env_steps_before,
            unroll.env_steps_after,
            unroll.dropped,
            steps,
            reason,
        )
        if reason is None and not self._queue.offer(unroll, unroll.nbytes):
            reason = "shutdown"
            self._account.dropped(reason, steps)
        if reason is None:
            self._recent.add(unroll)
        if self._account.reached is None:  # else the actor waits for the end and acts no more
            # a refused one too: the actor must not wait for it
            reply = UnrollReply(envelope.sequence, reason is None, reason or "", self._account.last)
            self._unrolls.send(routing_id, reply)
