"""Answers on their way from the workers to the sockets' thread."""

from __future__ import annotations

import socket
import threading
from collections import deque

from aclearn.wire import ActReply
from services.predictor.prediction_queue import Pending
from services.runtime.worker_pool import WORKER_WAITS_S

#: Batches that may wait for the sockets' thread; then workers wait.
_MOST_ANSWERED = 256

#: The requests of a batch with their replies, in its order.
Answered = list[tuple[Pending, ActReply]]


class Outbox:
    """Replies on their way from the workers to the one thread that owns the sockets.

    Bounded: a worker whose batch does not fit waits.
    """

    def __init__(self, *, most: int = _MOST_ANSWERED) -> None:
        self._most = most
        self._batches: deque[Answered] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._woken = False

    @property
    def wake_fd(self) -> int:
        """A file descriptor that is readable while there is something to take."""
        return self._wake_receiver.fileno()

    def put(self, answered: Answered) -> None:
        """Hand a batch over, waiting for room; a closed outbox drops it at once."""
        with self._changed:
            while len(self._batches) >= self._most and not self._closed:
                self._changed.wait(WORKER_WAITS_S)
            if self._closed:
                return
            self._batches.append(answered)
            if not self._woken:
                self._woken = True
                self._wake_sender.send(b"\0")

    def take(self) -> list[Answered]:
        """Everything that is there."""
        if not self._woken:  # without the lock: a put a moment later ends the next wait
            return []
        with self._changed:
            self._wake_receiver.recv(1)
            self._woken = False
            taken = list(self._batches)
            self._batches.clear()
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """End all waits and close the file descriptors."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._wake_receiver.close()
            self._wake_sender.close()
