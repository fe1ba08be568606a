"""Workers of one role, whose number changes while they run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from aclearn.telemetry import ThreadMeters, WaitMeter, measure_here

_LOGGER = logging.getLogger(__name__)

#: Most workers that a monitor may ask for, as many as a configuration may.
MOST_WORKERS = 64
#: Failures in a row, over all workers or of one of them, with which a pool gives itself up.
MOST_FAILURES = 3

#: Longest wait of a worker's step: then the worker looks whether it is still wanted.
WORKER_WAITS_S = 0.1

#: Returns whether there was something to do; idle steps are neither failures nor successes.
Step = Callable[[WaitMeter], bool]


@dataclass(eq=False)
class _Worker:
    index: int
    meter: WaitMeter
    step: Step | None = None
    ready: bool = False  # made and past its first step
    failures: int = 0  # in a row
    thread: threading.Thread | None = None


class WorkerPool:
    """Threads that repeat a step each. A failed step is counted and the worker is replaced.

    Steps wait for `WORKER_WAITS_S` at most. Three failures without a success between them, of
    whichever workers, end the pool, and so do three of one worker, however well the others do:
    `check` raises the last one.

    Args:
        make_step: makes the step of a new worker, in the worker's thread.
        name: of the threads.
        clock: seconds, for the shares of waiting.
        inline: there are no threads; `step` lets each worker make a step, which does not wait.

    Attributes:
        failures: steps that raised.
    """

    def __init__(
        self,
        make_step: Callable[[], Step],
        *,
        name: str,
        clock: Callable[[], float] = time.perf_counter,
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
        self._meters = ThreadMeters(clock)

    @property
    def size(self) -> int:
        """How many workers there are to be; one that is not wanted any more ends its step first."""
        return self._wanted

    @property
    def running(self) -> int:
        """How many workers work: made and past their first step, and not ended yet."""
        with self._lock:
            return sum(worker.ready for worker in self._workers.values())

    def resize(self, count: int) -> None:
        """Have `count` workers from now on; none once closed. Never blocks.

        Raises:
            ValueError: `count` is negative.
        """
        if count < 0:
            raise ValueError(f"workers: expected a count of at least 0, got {count}")
        with self._lock:
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
        """Where there are no threads, let each worker make a step; then as `check`."""
        if self._inline:
            for _, worker in sorted(self._workers.items()):
                if self._goes_on(worker):
                    self._turn(worker)
        self.check()

    def check(self) -> None:
        """Raise what ended the pool, if anything has."""
        if self._fatal is not None:
            raise RuntimeError(
                f"{MOST_FAILURES} steps of {self._name} workers in a row failed"
            ) from self._fatal

    def waits(self) -> dict[str, float]:
        """Thread-seconds of all workers by what they waited for, for a heartbeat."""
        return self._meters.waits()

    def parts(self) -> dict[str, float]:
        """Thread-seconds of all workers by part of their work, for a heartbeat."""
        return self._meters.parts()

    def close(self, timeout_s: float) -> bool:
        """End all workers after their step; whether they ended within `timeout_s`."""
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
        except Exception as error:
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
            # under the lock: `resize` either still counts on this worker or makes another one
            del self._workers[worker.index]
            self._meters.retire(worker.meter)
            return False

    def _failed(self, worker: _Worker, error: Exception) -> None:
        _LOGGER.exception("event=worker_failed worker=%s", self._name_of(worker))
        with self._lock:
            worker.ready = False
            worker.failures += 1
            self.failures += 1
            self._in_a_row += 1
            if max(self._in_a_row, worker.failures) >= MOST_FAILURES:
                self._fatal = error


class WantedWorkers:
    """Follows the number of workers that the monitor wants; refuses what cannot be.

    Args:
        pool: to resize.
        most: bound of the count.

    Attributes:
        pool: that follows.
        refused: counts that were refused.
    """

    def __init__(self, pool: WorkerPool, *, most: int = MOST_WORKERS) -> None:
        self.pool, self._most = pool, most
        self._told: int | None = None
        self.refused = 0

    def follow(self, count: int | None) -> None:
        """Have `count` workers, where it is a new wish."""
        if count is None or count == self._told:
            return
        self._told = count
        if not 1 <= count <= self._most:
            self.refused += 1
            _LOGGER.error("event=workers_refused count=%d expected=1..%d", count, self._most)
            return
        if count != self.pool.size:
            _LOGGER.info("event=workers before=%d now=%d", self.pool.size, count)
            self.pool.resize(count)
