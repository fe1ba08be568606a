"""A trainer's checkpoints: restore the newest, write when due, keep the best."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from aclearn.config import RunConfig
from aclearn.errors import CheckpointError
from aclearn.runs import RunFolder, load_best, load_newest, save_checkpoint
from services.trainer.checkpoint_record import CheckpointRecord
from services.trainer.trainer import Snapshot, Trainer
from services.trainer.warm_start import WarmStart

_LOGGER = logging.getLogger(__name__)

#: Most offered mean returns that wait.
_MOST_OFFERED = 64


class TrainerCheckpoints:
    """Writes the checkpoints of one trainer, from one thread; any may call `offer_best`.

    Args:
        trainer: whose snapshots are written.
        folder: of the run.
        run: interval of checkpoints, and the number to keep.
        start: gives that with which a run without checkpoints begins.
        clock: monotonic seconds.

    Attributes:
        best_return: mean return of 100 episodes of the best policy so far; None before the first.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder,
        run: RunConfig,
        *,
        start: Callable[[], WarmStart] = WarmStart,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trainer, self._folder, self._clock = trainer, folder, clock
        self._dir = folder.checkpoints_dir
        self._kept, self._start = run.checkpoints_kept, start
        now = clock()
        self._record = CheckpointRecord(run.checkpoint_every_s, tried_at=now, saved_at=now)
        self.best_return: float | None = None
        self._best: Snapshot | None = None
        self._offered: deque[float] = deque(maxlen=_MOST_OFFERED)

    def restore_or_start(self) -> bool:
        """Restore the newest whole checkpoint; False if there is none, and `start` is saved.

        Raises:
            CheckpointError: there are checkpoints or signs of some, but none can be used, or a disk
                error.
        """
        digest = self._trainer.learner.architecture.digest()
        checkpoint = load_newest(self._dir, expect_architecture=digest)
        if checkpoint is None:
            self._folder.check_resumable()
            start = self._start()
            if start.tensors:
                self._trainer.learner.load_state_tensors(start.tensors)
                _LOGGER.info("event=warm_start tensors=%d", len(start.tensors))
            for doubt in start.doubts:
                _LOGGER.info("event=warm_start_doubt detail=%r", doubt)
            self._save(self._trainer.snapshot())
            return False
        try:
            self._trainer.restore(Snapshot(checkpoint.tensors, checkpoint.state))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{checkpoint.path}: incomplete state: {error!r}") from error
        self._note_saved(checkpoint.state)
        self.best_return = self._saved_best()
        _LOGGER.info(
            "event=resumed checkpoint=%s generation=%d version=%d updates=%d",
            checkpoint.path.name,
            self._trainer.generation,
            self._trainer.counters.policy_version,
            self._trainer.counters.updates,
        )
        return True

    def offer_best(self, return_mean: float) -> None:
        """Propose the present policy as the best, by the mean return of the newest 100 episodes."""
        self._offered.append(return_mean)

    def copy_best(self) -> None:
        """Copy the present policy as the best if an offered mean is the highest so far.

        It is written with the next checkpoint.
        """
        while self._offered:
            return_mean = self._offered.popleft()
            if self.best_return is not None and return_mean <= self.best_return:
                continue
            try:
                self._best = self._trainer.snapshot(return_mean)
            except CheckpointError as error:
                self._note_failure(error)
                continue
            self.best_return = return_mean

    def write_if_due(self) -> None:
        """Write if `run.checkpoint_every_s` have passed; a full disk is reported, not fatal.

        An offered best is copied at once.
        """
        self.copy_best()
        if self._record.due(self._clock()):
            self.write()

    def write(self) -> None:
        """Write now; an error is reported in heartbeats and the previous checkpoint stays."""
        self._record.tried_at = self._clock()
        try:
            if self._best is not None:  # first: a run resumes from the last one written
                self._save(self._best)
                self._best = None
            if self._record.updates != self._trainer.counters.updates:
                self._save(self._trainer.snapshot())
        except CheckpointError as error:
            self._note_failure(error)

    def heartbeat_fields(self) -> dict[str, Any]:
        """Counters, dropped steps, gauges and note of a heartbeat, at the same moment."""
        fields, record = self._trainer.heartbeat_fields(), self._record
        counters = fields["counters"]
        counters |= record.counters(
            updates=counters["updates"], learned_steps=counters["learned_steps"]
        )
        fields["gauges"]["checkpoint_age_s"] = self._clock() - record.saved_at
        if self.best_return is not None:
            fields["gauges"]["best_return"] = self.best_return
        return {**fields, "note": record.error}

    def _note_failure(self, error: CheckpointError) -> None:
        if not self._record.error:  # logged once: heartbeats count the others
            _LOGGER.warning("event=checkpoint_failed reason=%r", str(error))
        self._record.failed(error, self._dir)

    def _save(self, snapshot: Snapshot) -> None:
        save_checkpoint(
            self._dir,
            tensors=snapshot.tensors,
            state=snapshot.state,
            label=snapshot.state["counters"]["updates"],
            keep=self._kept,
            best=snapshot.state["return_mean_100"] is not None,
        )
        self._note_saved(snapshot.state)

    def _note_saved(self, state: Mapping[str, Any]) -> None:
        self._record.saved(
            self._clock(),
            updates=state["counters"]["updates"],
            learned_steps=state["ledger"]["learned_steps"],
        )

    def _saved_best(self) -> float | None:
        try:
            best = load_best(self._dir)
        except CheckpointError as error:  # none is whole: any new best is an improvement
            _LOGGER.warning("event=best_not_read reason=%r", str(error))
            return None
        return None if best is None else float(best.state["return_mean_100"])
