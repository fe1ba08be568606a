"""A trainer that is fed by actors: sockets, workers, and the queue between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from aclearn import wire
from aclearn.control.directives import SetWorkers
from aclearn.errors import WireError
from aclearn.learning import (
    UNFIT,
    JointUnrolls,
    OfOneNumber,
    RecentObservations,
    TrainingQueue,
    check_unroll,
    largest_unroll_bytes,
    too_old,
)
from aclearn.telemetry import WaitMeter
from aclearn.types import Unroll
from aclearn.wire import Envelope, Heartbeat, UnrollReply
from services.policy.factory import unroll_spec_of
from services.policy.shared_weights import SHARED_WEIGHTS
from services.role.context import RoleContext
from services.role.metrics import RoleMetrics
from services.role.seeds import Use
from services.role.worker_pool import WORKER_WAITS_S, Step, WorkerPool
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.obeyed import obeyed_by
from services.trainer.quota import KeyQuota
from services.trainer.trainer import Trainer
from services.trainer.trainers import Trainers
from services.trainer.weight_sharing import allocator_for, share_weights
from services.trainer.weights_server import WeightsServer

#: Longest wait of the thread; while the training queue is full, the delay until it sees free room.
_LOOK_EVERY_S = 0.05
_LOOK_EVERY_WHILE_FULL_S = 0.005
#: Seconds for the workers' last updates, and for the last heartbeat.
_LAST_UPDATE_WITHIN_S, _CLOSE_WITHIN_S = 5.0, 3.0


def make_step(trainer: Trainer | Trainers, *, timeout_s: float = WORKER_WAITS_S) -> Step:
    """A worker's step: learn a batch. Waits at most `timeout_s` for it."""
    worker: Any = trainer.make_worker()  # of this kind of trainer
    return lambda meter: trainer.step(timeout_s, worker)


class QueueLoop:
    """Workers learn what the sockets' thread puts into the queue.

    The sockets have a thread of their own, which answers at once while a worker is busy for a whole
    update. It reads an unroll only if the queue has room: that is the back-pressure, since actors
    wait for acknowledgements. Inline, sockets and workers take turns.

    Args:
        trainer: learns from the queue; it has not published yet.
        checkpoints: theirs are the heartbeat's fields, and they save the best policy; None: another
            rank saves, and has the weights.
        queues: policy that learns → queue of its unrolls, which hold as many.
    """

    def __init__(
        self,
        context: RoleContext,
        trainer: Trainer | Trainers,
        checkpoints: TrainerCheckpoints | None,
        queues: Mapping[str, TrainingQueue[Unroll]],
    ) -> None:
        config, env_spec = context.config, context.run.env_spec
        assert env_spec is not None
        self._context, self._queues = context, queues
        self._fields = (checkpoints or trainer).heartbeat_fields
        self._trainer, self._accounts = trainer, trainer.accounts
        specs = env_spec.by_policy(config.patterns)
        own = {policy: config.of_policy(policy) for policy in queues}
        self._specs = {
            policy: unroll_spec_of(each, specs[policy], policy) for policy, each in own.items()
        }
        self._most_lag = {policy: each.trainer.max_lag_versions for policy, each in own.items()}
        self._quota, self._clock = KeyQuota(), context.clocks.decisions
        self._joint = JointUnrolls(
            queues,
            most=config.monitor.max_processes,
            most_bytes=config.trainer.queue_bytes,
            clock=context.clocks.decisions,
            on_forgotten=self._answer_lost,
        )
        seed = context.seeds(trainer.generation).number(Use.OBSERVATIONS)
        self._recent = {
            policy: RecentObservations(spec.observation, seed=seed)
            for policy, spec in specs.items()
        }
        # bound here, so that a bad address fails the start
        self._unrolls, unrolls = context.serve(
            "unrolls", array_bytes=max(map(largest_unroll_bytes, self._specs.values()))
        )
        endpoints = {"unrolls": unrolls}
        self._weights: WeightsServer | None = None
        if checkpoints is not None:  # of rank 0: its weights are those of every rank
            self._weights = WeightsServer(context, trainer, self._recent, checkpoints)
            endpoints["weights"] = self._weights.endpoint
        if self._weights is not None and not context.inline:
            learners = {name: each.learner for name, each in trainer.by_policy.items()}
            shared = share_weights(
                {
                    name: (each.published, learners[name].architecture.acting())
                    for name, each in trainer.by_policy.items()
                },
                allocator_for(config, next(iter(learners.values())).device),
                context.run.monitor,
            )
            if shared is not None:
                endpoints[SHARED_WEIGHTS] = shared
        trainer.publish()
        timeout_s = 0.0 if context.inline else WORKER_WAITS_S
        self._pool = WorkerPool(
            lambda: make_step(trainer, timeout_s=timeout_s), name="trainer", inline=context.inline
        )
        self._meter = WaitMeter()
        servers = [self._unrolls, *([self._weights.server] if self._weights else [])]
        self._metrics = RoleMetrics(self._meter, servers, self._pool)
        on = obeyed_by(trainer, checkpoints)
        if trainer.rounds.group.size == 1:  # several workers of a rank would exchange in any order
            # here, where no checkpoint delays it
            on = {**on, SetWorkers: lambda wanted: self._pool.resize(wanted.count)}
        self.monitor = context.join(self.heartbeat, endpoints, on=on, generation=trainer.generation)
        self._while_full = wire.ChannelPoller(*servers[1:], self.monitor.channel)
        self._reading = wire.ChannelPoller(*servers[1:], self.monitor.channel, self._unrolls)
        self._closing, self._ended = threading.Event(), True
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._pool.resize(config.trainer.workers)
        if not context.inline:  # the sockets belong to it from now on
            self._thread = threading.Thread(target=self._run, name="trainer-sockets", daemon=True)
            self._thread.start()

    @property
    def stopped(self) -> bool:
        """Whether the monitor or a signal stops the trainer."""
        return bool(self._context.stop) or self.monitor.stop_reason is not None

    def step(self, timeout_s: float) -> None:
        """Let the threads work for `timeout_s`, and check them.

        Raises:
            RuntimeError: workers failed three times in a row, or the socket thread died.
        """
        if self._context.inline:
            self._serve(timeout_s)
        else:
            time.sleep(timeout_s)
        if self._failure is not None:
            raise RuntimeError("the thread of the trainer's sockets died") from self._failure
        self._pool.step()

    def end(self) -> bool:
        """End the workers; whether they ended in time."""
        self._ended = self._pool.close(_LAST_UPDATE_WITHIN_S)
        return self._ended

    def close(self) -> None:
        """Send the last heartbeat, close the sockets, and end their thread."""
        self._closing.set()
        if self._thread is None:
            self._leave()
        else:
            self._thread.join(_CLOSE_WITHIN_S)
        if self._ended:  # a hanging worker may still publish
            for each in self._trainer.by_policy.values():
                each.published.close()

    def heartbeat(self) -> Heartbeat:
        """The trainer's heartbeat; for the socket thread."""
        fields = self._fields()
        fields["gauges"]["queue_fill"] = max(queue.fill for queue in self._queues.values())
        return self._metrics.heartbeat(**fields)

    def _serve(self, timeout_s: float) -> None:
        """Answer received messages, waiting up to `timeout_s` for the first."""
        with self._meter.waiting("messages"):
            if self._full:
                self._while_full.wait(min(timeout_s, _LOOK_EVERY_WHILE_FULL_S))
            else:
                self._reading.wait(timeout_s)
        with self._meter.part("wire"):
            if self._weights is not None:
                self._weights.answer()
        while not self._full:
            with self._meter.part("decode"):
                received = self._unrolls.receive(0.0, limit=1)
                for routing_id, envelope in received:
                    self._take_unroll(routing_id, envelope)
            if not received:
                break
        with self._meter.part("wire"):
            self.monitor.tick()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                self._serve(_LOOK_EVERY_S)
            self._leave()
        except BaseException as error:
            self._failure = error
            raise

    def _leave(self) -> None:
        self.monitor.leave()
        self._unrolls.close()
        if self._weights is not None:
            self._weights.close()

    @property
    def _full(self) -> bool:
        """Whether a queue is full; all have the same number of unrolls."""
        return any(queue.full for queue in self._queues.values())

    def _take_unroll(self, routing_id: bytes, envelope: Envelope) -> None:
        unroll = envelope.message
        assert isinstance(unroll, Unroll)  # the server accepts no other
        policy = unroll.policy if unroll.policy in self._queues else next(iter(self._queues))
        now = self._clock()
        try:
            self._quota.check_process(envelope.key, envelope.incarnation, now)
        except WireError as error:  # its account would close another process's
            self._unrolls.refuse(routing_id, error)
            return
        try:
            self._quota.check_rate(envelope.key, now)
            check_unroll(unroll, self._specs[policy])
            most = self._most_lag[policy]
            reason = too_old(unroll, self._trainer.at, max_lag_versions=most)
        except WireError as error:
            self._unrolls.refuse(routing_id, error)
            reason = error.reason
        whole = self._joint.add(
            envelope.incarnation,
            envelope.sequence,
            policy,
            unroll,
            sender=routing_id,
            reason=reason,
        )
        if whole is not None:
            self._take_unrolls(routing_id, envelope, whole)

    def _take_unrolls(self, routing_id: bytes, envelope: Envelope, whole: OfOneNumber) -> None:
        """Take those of one number of an actor, one of each learning policy."""
        unrolls = whole.unrolls
        refusal = self._accounts.admit(
            envelope.incarnation, envelope.sequence, unrolls, whole.reason
        )
        # of an unfit one also where its counters do not fit either
        unfit = (each for each in whole.reasons.values() if each in UNFIT)
        reason = next(unfit, refusal)
        if reason is None and (left := self._not_queued(unrolls)):
            reason = "shutdown"
            self._accounts.dropped(reason, left)
        if reason is None:
            for policy, unroll in unrolls.items():
                self._recent[policy].add(unroll)
        if self._accounts.reached is None:  # else the actor waits for the end and acts no more
            # a refused one too: the actor must not wait for it
            last = self._accounts.last
            reply = UnrollReply(envelope.sequence, reason is None, reason or "", last)
            self._unrolls.send(routing_id, reply)

    def _answer_lost(self, forgotten: OfOneNumber) -> None:
        """Tell an actor that its unrolls will not be learned, so that it goes on."""
        reply = UnrollReply(forgotten.number, False, "lost", self._accounts.last)
        self._unrolls.send(forgotten.sender, reply)

    def _not_queued(self, unrolls: Mapping[str, Unroll]) -> dict[str, Unroll]:
        """Put each unroll into the queue of its policy; those of which it is closed."""
        return {
            policy: unroll
            for policy, unroll in unrolls.items()
            if not self._queues[policy].offer(unroll, unroll.nbytes)
        }
