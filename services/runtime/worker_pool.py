"""Worker threads of one role, whose number changes while they run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from aclearn.telemetry import ThreadMeters, WaitMeter, measure_here

_LOGGER = logging.getLogger(__name__)

#: Most workers that a monitor may ask for, as many as a configuration may.
MOST_WORKERS = 64
#: Failures in a row, over all workers or of one of them, with which a pool gives itself up.
MOST_FAILURES = 3

#: Returns whether there was something to do; idle steps are neither failures nor successes.
Step = Callable[[WaitMeter], bool]


class WorkerPool:
    """Threads that repeat a step each. A failed step is counted and the worker is replaced.

    Steps must not wait longer than a fraction of a second: between two of them a worker looks
    whether it is still wanted. Three failures without a success between them, of whichever workers,
    end the pool, and so do three of one worker, however well the others do: `check` raises the last
    one.

    Args:
        make_step: makes the step of a new worker, in the worker's thread.
        name: of the threads.
        clock: seconds, for the shares of waiting.

    Attributes:
        failures: steps that raised.
    """

    def __init__(
        self,
        make_step: Callable[[], Step],
        *,
        name: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._make_step, self._name, self._clock = make_step, name, clock
        self._lock = threading.Lock()
        self._threads: dict[int, threading.Thread] = {}
        self._ready: set[int] = set()
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
            return len(self._ready)

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
                if index not in self._threads:
                    thread = threading.Thread(
                        target=self._run, args=(index,), name=f"{self._name}-{index}", daemon=True
                    )
                    self._threads[index] = thread
                    thread.start()

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
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _run(self, index: int) -> None:
        meter = self._meters.meter()
        measure_here(meter)
        step: Step | None = None
        ready, failures = False, 0
        while self._goes_on(index, meter):
            try:
                step = step or self._make_step()
                worked = step(meter)
            except Exception as error:
                step, ready = None, False
                failures += 1
                self._failed(index, error, failures)
            else:
                if worked:
                    self._in_a_row = failures = 0
                if not ready:
                    ready = True
                    with self._lock:
                        self._ready.add(index)

    def _goes_on(self, index: int, meter: WaitMeter) -> bool:
        with self._lock:
            if index < self._wanted and self._fatal is None:
                return True
            # under the lock: `resize` either still counts on this thread or starts another one
            del self._threads[index]
            self._ready.discard(index)
            self._meters.retire(meter)
            return False

    def _failed(self, index: int, error: Exception, its_failures: int) -> None:
        _LOGGER.exception("event=worker_failed worker=%s", threading.current_thread().name)
        with self._lock:
            self._ready.discard(index)
            self.failures += 1
            self._in_a_row += 1
            if max(self._in_a_row, its_failures) >= MOST_FAILURES:
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
