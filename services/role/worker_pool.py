"""A role's worker threads, whose number changes at run time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from aclearn.errors import RankLost
from aclearn.telemetry import ThreadMeters, WaitMeter, measure_here

_LOGGER = logging.getLogger(__name__)

#: Failures in a row, of all workers or of one, that end the pool.
MOST_FAILURES = 3

#: Longest wait of a worker's step, after which it checks whether to end.
WORKER_WAITS_S = 0.1

#: Returns whether there was work; idle steps are neither failures nor successes.
Step = Callable[[WaitMeter], bool]


@dataclass(eq=False)
class _Worker:
    index: int
    meter: WaitMeter
    step: Step | None = None
    ready: bool = False  # made, and its first step done
    failures: int = 0  # in a row
    thread: threading.Thread | None = None


class WorkerPool:
    """Threads that each repeat a step. A failed step is counted and its worker replaced.

    Steps wait for at most `WORKER_WAITS_S`. Three failures in a row, of all workers together or of
    one, end the pool: `check` raises the last one.

    Args:
        make_step: makes the step of a new worker, in the worker's thread.
        inline: no threads; `step` lets each worker make a step, which does not wait.
    """

    def __init__(
        self,
        make_step: Callable[[], Step],
        *,
        name: str,
        inline: bool = False,
    ) -> None:
        self._make_step, self._name, self._inline = make_step, name, inline
        self._lock = threading.Lock()
        self._workers: dict[int, _Worker] = {}
        self._wanted = 0
        self._closed = False
        self._in_a_row = 0
        self._fatal: BaseException | None = None
        self.failures = 0
        self._meters = ThreadMeters()

    @property
    def size(self) -> int:
        """The wanted number of workers; surplus ones end after their step."""
        return self._wanted

    @property
    def running(self) -> int:
        """The number of workers past their first step."""
        with self._lock:
            return sum(worker.ready for worker in self._workers.values())

    def resize(self, count: int) -> None:
        """Change the number of workers; no effect once closed. Never blocks.

        Raises:
            ValueError: `count` is negative.
        """
        if count < 0:
            raise ValueError(f"workers: expected a count of at least 0, got {count}")
        with self._lock:
            if count != self._wanted:
                _LOGGER.info("event=workers before=%d now=%d", self._wanted, count)
            self._wanted = count = 0 if self._closed else count
            for index in range(count):
                if index not in self._workers:
                    worker = self._workers[index] = _Worker(index, self._meters.meter())
                    if not self._inline:
                        worker.thread = threading.Thread(
                            target=self._run, args=(worker,), name=self._name_of(worker)
                        )
                        worker.thread.daemon = True
                        worker.thread.start()

    def step(self) -> None:
        """Without threads, let each worker make a step; then as `check`."""
        if self._inline:
            for _, worker in sorted(self._workers.items()):
                if self._goes_on(worker):
                    self._turn(worker)
        self.check()

    def check(self) -> None:
        """Raise the error that ended the pool, if any."""
        if isinstance(self._fatal, RankLost):
            raise self._fatal
        if self._fatal is not None:
            raise RuntimeError(
                f"{MOST_FAILURES} steps of {self._name} workers in a row failed"
            ) from self._fatal

    def waits(self) -> dict[str, float]:
        """Thread-seconds of all workers by reason of waiting, for a heartbeat."""
        return self._meters.waits()

    def parts(self) -> dict[str, float]:
        """Thread-seconds of all workers by part of their work, for a heartbeat."""
        return self._meters.parts()

    def close(self, timeout_s: float) -> bool:
        """End all workers after their step; returns whether they ended within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            self._closed, self._wanted = True, 0
            threads = [worker.thread for worker in self._workers.values() if worker.thread]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _name_of(self, worker: _Worker) -> str:
        return f"{self._name}-{worker.index}"

    def _run(self, worker: _Worker) -> None:
        while self._goes_on(worker):
            self._turn(worker)

    def _turn(self, worker: _Worker) -> None:
        measure_here(worker.meter)
        try:
            worker.step = worker.step or self._make_step()
            worked = worker.step(worker.meter)
        except BaseException as error:
            # a thread that `SystemExit` of a user's code ends says nothing
            if self._inline and not isinstance(error, Exception):
                raise
            worker.step = None
            self._failed(worker, error)
        else:
            if worked:
                self._in_a_row = worker.failures = 0
            worker.ready = True

    def _goes_on(self, worker: _Worker) -> bool:
        with self._lock:
            if worker.index < self._wanted and self._fatal is None:
                return True
            # under the lock: `resize` either still counts this worker or makes another one
            del self._workers[worker.index]
            self._meters.retire(worker.meter)
            return False

    def _failed(self, worker: _Worker, error: BaseException) -> None:
        _LOGGER.exception("event=worker_failed worker=%s", self._name_of(worker))
        with self._lock:
            worker.ready = False
            worker.failures += 1
            self.failures += 1
            self._in_a_row += 1
            often = max(self._in_a_row, worker.failures) >= MOST_FAILURES
            if often or isinstance(error, RankLost):  # no other worker would find the ranks
                self._fatal = error
