"""Batches that a replay memory draws; each step may be learned many times."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aclearn.config import ReplayConfig
from aclearn.learning.account import StepAccount
from aclearn.learning.batch import Batch
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.learning.sources.memory import ReplayMemory
from aclearn.learning.sources.source import BatchSource, SourceAround

_LOGGER = logging.getLogger(__name__)

#: Reason of steps that new ones overwrote before they were drawn.
NEVER_DRAWN = "never_drawn"
#: Largest memory that a checkpoint contains.
SAVED_BYTES = 256 * 1024 * 1024
#: Longest wait for another thread's turn with the memory; most take milliseconds.
_TURN_WITHIN_S = 10.0
_PREFIX = "replay/"


class Replay(SourceAround):
    """Draws batches from a memory of the inner source's steps; for any number of threads.

    It holds the ratio of drawn to new steps. Before more may be drawn it takes another batch of the
    inner source, and while more may be drawn it takes none, so that actors wait. A step that was
    never drawn is in flight. The first batch that contains it has it as a new step.
    """

    def __init__(
        self, inner: BatchSource, memory: ReplayMemory, account: StepAccount, config: ReplayConfig
    ) -> None:
        super().__init__(inner)
        self.draws = True
        self._memory, self._account, self._config = memory, account, config
        self._lock = threading.Lock()  # of the memory; held by none that waits for new steps
        self._taking = threading.Lock()  # of the inner source's turn
        self._added = self._drawn = 0
        self._paid = 0.0  # steps that may be drawn; by the ratio at the time of each new step
        self._chain_steps: Counter[str] = Counter()  # of new steps since the last batch
        self._closed = False

    @override
    def next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        if not self._taking.acquire(timeout=timeout_s):
            return None
        with worker.on_stream():
            try:
                bounded = self.inner.plays and self._account.reached is not None
                if not self._may_draw and not bounded:
                    self._take(timeout_s, worker)
            finally:
                self._taking.release()
            with self._turn():
                return self._draw()

    @override
    def of_new_steps(self, timeout_s: float, worker: GradientWorker) -> Iterator[Batch] | None:
        with worker.on_stream():
            taken = self._take(timeout_s, worker)
        return self._all_draws(worker) if taken else None

    def _all_draws(self, worker: GradientWorker) -> Iterator[Batch]:
        while True:
            with worker.on_stream(), self._turn():
                batch = self._draw()
            if batch is None:
                return
            yield batch

    def _draw(self) -> Batch | None:
        """A batch, if one may be drawn; in a turn."""
        if not self._may_draw or self._closed:
            return None
        batch = self._memory.sample(self._config.batch)
        self._drawn += self._config.batch
        self._paid -= self._config.batch
        chain_steps, self._chain_steps = self._chain_steps, Counter()
        return replace(batch, chain_steps=chain_steps)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The memory for one thread; other threads' streams go on after this one's.

        Raises:
            TimeoutError: another thread's turn hangs.
        """
        if not self._lock.acquire(timeout=_TURN_WITHIN_S):
            raise TimeoutError(f"a worker has held the replay memory for {_TURN_WITHIN_S:g} s")
        try:
            yield
            if self._memory.device.type == "cuda":
                torch.cuda.current_stream(self._memory.device).synchronize()
        finally:
            self._lock.release()

    @property
    def _may_draw(self) -> bool:
        return self._memory.steps > 0 and self._config.batch <= self._paid

    def _take(self, timeout_s: float, worker: GradientWorker) -> bool:
        """Add the inner source's next batch; whether there is one."""
        batch = self.inner.next(timeout_s, worker)
        if batch is None:
            return False
        steps = int(batch.new_steps)
        with self._account.dropped_on_error(steps), self._turn():
            if self._closed:
                self._account.dropped("shutdown", steps)
                return False
            lost = self._memory.add(batch)
            beyond = max(0, self._added + steps - max(self._added, self._config.start))
            self._paid += self._config.ratio * beyond
            self._added += steps
            self._chain_steps.update(batch.chain_steps)
            if lost:
                self._account.dropped(NEVER_DRAWN, lost)
        return True

    @override
    def learned(self, batch: Batch, errors: Tensor | None = None) -> None:
        if self._config.prioritised and errors is not None and batch.places is not None:
            with self._turn():
                self._memory.learned(batch.places, errors)

    @override
    def heartbeat_fields(self) -> dict[str, dict[str, Any]]:
        fields = {name: dict(values) for name, values in super().heartbeat_fields().items()}
        gauges = fields.setdefault("gauges", {})
        gauges["replay_steps"] = float(self._memory.steps)
        gauges["replay_ratio"] = self._drawn / max(1, self._added)
        return fields

    @override
    def state(self) -> dict[str, NDArray[Any]]:
        """The memory is part of it up to `SAVED_BYTES`; a larger one is lost with the process."""
        saved = super().state()
        if self._memory.nbytes_there > SAVED_BYTES:
            return saved
        with self._turn():
            saved |= {f"{_PREFIX}{name}": a for name, a in self._memory.state().items()}
            saved[f"{_PREFIX}counts"] = np.array([self._added, self._drawn])
            saved[f"{_PREFIX}paid"] = np.array(self._paid)
        return saved

    @override
    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        super().restore(saved)
        mine = {
            name.removeprefix(_PREFIX): array
            for name, array in saved.items()
            if name.startswith(_PREFIX)
        }
        try:
            added, drawn = mine["counts"].tolist()
            paid = float(mine["paid"])
            self._memory.load_state(mine)
        except (KeyError, ValueError, RuntimeError) as error:
            _LOGGER.warning(
                "event=replay_is_empty detail='the checkpoint has no replay memory that fits (%s): "
                "learning goes on after replay.start new steps'",
                error,
            )
            return
        self._added, self._drawn, self._paid = added, drawn, paid

    @override
    def close(self) -> None:
        super().close()
        closed, self._closed = self._closed, True
        if closed:
            return
        try:
            with self._turn():
                self._account.dropped("shutdown", self._memory.never_drawn)
        except TimeoutError as error:
            _LOGGER.error("event=replay_hangs detail=%r", str(error))
