"""A predictor's workers: threads that take batches, compute them and hand the replies over."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions import sample_actions
from aclearn.telemetry import WaitMeter, part
from aclearn.wire import ActReply
from services.policy_sources import Acting
from services.prediction_queue import Pending, PredictionQueue
from services.workers import Step

#: Longest wait of a worker for a batch, or for room in the outbox, before it looks whether it is
#: still wanted.
_LOOK_EVERY_S = 0.1
#: Batches that may wait for the sockets' thread; then workers wait.
_MOST_ANSWERED = 256

#: The requests of a batch with their replies, in its order.
Answered = list[tuple[Pending, ActReply]]


def answer_batch(batch: Sequence[Pending], acting: Acting, rng: np.random.Generator) -> Answered:
    """The replies to a batch, in its order, all by one policy."""
    arrays: list[NDArray[Any]] = [pending.request.observations for pending in batch]
    with part("batch"):
        observations = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    with part("inference"):
        actions, log_probs = sample_actions(acting.logits(observations), rng)
    answered = []
    start = 0
    for pending in batch:
        rows = slice(start, start + pending.size)
        start = rows.stop
        reply = ActReply(
            pending.request.request,
            acting.at.epoch,
            acting.at.version,
            actions[rows],
            log_probs[rows],
            acting.chain,
        )
        answered.append((pending, reply))
    return answered


class Outbox:
    """Replies on their way from the workers to the one thread that owns the sockets.

    Bounded: a worker whose batch does not fit waits.
    """

    def __init__(self, *, most: int = _MOST_ANSWERED) -> None:
        self._most = most
        self._batches: deque[Answered] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._bell, self._ringer = socket.socketpair()
        self._rung = False

    @property
    def bell(self) -> int:
        """A file descriptor that is readable while there is something to take."""
        return self._bell.fileno()

    def put(self, answered: Answered) -> None:
        """Hand a batch over, waiting for room; on a closed outbox nobody waits for it any more."""
        with self._changed:
            while len(self._batches) >= self._most and not self._closed:
                self._changed.wait(_LOOK_EVERY_S)
            if self._closed:
                return
            self._batches.append(answered)
            if not self._rung:
                self._rung = True
                self._ringer.send(b"\0")

    def take(self) -> list[Answered]:
        """Everything that is there."""
        if not self._rung:  # without the lock: who rings a moment later ends the next wait
            return []
        with self._changed:
            self._bell.recv(1)
            self._rung = False
            taken = list(self._batches)
            self._batches.clear()
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """End all waits and close the file descriptors."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._bell.close()
            self._ringer.close()


def make_step(
    queue: PredictionQueue,
    outbox: Outbox,
    acting: Callable[[], Acting | None],
    rng: np.random.Generator,
) -> Step:
    """A worker's step: take a batch from the queue, answer it. Waits at most a moment.

    When it raises, the requests of its batch are counted and stay without an answer: their actors
    ask again.

    Args:
        queue: where batches come from.
        outbox: where replies go.
        acting: the policy that acts now; requests are let in only when there is one.
        rng: the worker's own.
    """

    def step(meter: WaitMeter) -> bool:
        with meter.waiting("requests"):
            batch = queue.take(timeout_s=_LOOK_EVERY_S)
        if batch:
            policy = acting()  # once a batch: the sockets' thread may swap policies meanwhile
            if policy is None:
                raise RuntimeError("a request was let in before the first policy")
            try:
                answered = answer_batch(batch, policy, rng)
            except Exception:
                queue.give_up(batch)
                raise
            outbox.put(answered)
        return bool(batch)

    return step
