"""Replies from the workers to the socket thread."""

from __future__ import annotations

import socket
import threading
from collections import deque

from aclearn.wire import ActReply
from services.predictor.prediction_queue import Pending
from services.role.worker_pool import WORKER_WAITS_S

#: Most batches that wait for the socket thread; then workers wait.
_MOST_ANSWERED = 256

#: The requests of a batch with their replies, in its order.
Answered = list[tuple[Pending, ActReply]]


class Outbox:
    """Passes replies from the workers to the thread that owns the sockets.

    Bounded: a worker waits for room.
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
        """A file descriptor that is readable while there are replies."""
        return self._wake_receiver.fileno()

    def put(self, answered: Answered) -> None:
        """Add a batch, waiting for room; a closed outbox drops it at once."""
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
        """All waiting replies."""
        if not self._woken:  # without the lock: a later put ends the next wait
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
