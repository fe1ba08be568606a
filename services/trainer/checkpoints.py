"""A trainer's checkpoints: restore the newest, write when due, keep the best."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from aclearn.config import Judge, RunConfig
from aclearn.control.directives import SaveBest
from aclearn.errors import CheckpointError
from aclearn.metrics.formatting import printable
from aclearn.runs import Mark, RunFolder, load_best, load_newest, save_checkpoint, why_not_written
from services.role.metrics import updates_of_all
from services.trainer.snapshot import Snapshot
from services.trainer.trainer import Trainer
from services.trainer.trainers import Trainers
from services.trainer.warm_start import WarmStart

_LOGGER = logging.getLogger(__name__)

#: Most seconds from a failed checkpoint to the next attempt.
_RETRY_AFTER_S = 10.0
#: In the order in which copies are written.
_MARKS: Final[tuple[Mark, ...]] = ("kept", "best", "")
#: Most characters of a reason in a heartbeat.
_MOST_REASON = 300
#: Most offered mean returns that wait.
_MOST_OFFERED = 64


class TrainerCheckpoints:
    """Writes the checkpoints of one trainer, from one thread.

    Any thread may call `offer_best` and `write_soon`.

    Args:
        judge: whose mean returns decide which policy is the best; see `Config.judge`.
        test: what an evaluator plays; see `Config.evaluator_test`.
        spread: policies that are kept for later, evenly over the run; see `keep`.
        start: gives that with which a run without checkpoints begins.

    Attributes:
        best_return: mean return of the best policy so far; None before the first.
    """

    def __init__(
        self,
        trainer: Trainer | Trainers,
        folder: RunFolder,
        run: RunConfig,
        *,
        judge: Judge = "training",
        test: str = "",
        spread: int = 0,
        start: Callable[[], WarmStart] = WarmStart,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trainer, self._folder, self._clock = trainer, folder, clock
        self._dir = folder.checkpoints_dir
        self._kept, self._start = run.checkpoints_kept, start
        self._every_s, self._judge, self._spread = run.checkpoint_every_s, judge, spread
        #: Means are compared with those that have the same in their checkpoint.
        self._by = {"by": judge} | ({"test": test} if judge == "evaluator" else {})
        self._tried_at = self._saved_at = clock()
        # in the newest checkpoint
        self._saved_updates, self._saved_steps, self._saved_env_steps = -1, 0, -1
        self._failures, self._error, self._asked = 0, "", False
        self.best_return: float | None = None
        #: Copies that are not written yet. With other ranks another thread adds some meanwhile.
        self._copies: dict[Mark, Snapshot] = {}
        #: Whose copies are written at once. A judgement is never repeated, as training's means are.
        self._at_once: tuple[Mark, ...] = _MARKS if judge == "evaluator" else ("kept", "")
        self._offered: deque[tuple[float, Snapshot | None]] = deque(maxlen=_MOST_OFFERED)

    def restore_or_start(self) -> bool:
        """Restore the newest whole checkpoint; False if there is none, and `start` is saved.

        Raises:
            CheckpointError: there are checkpoints or signs of some, but none can be used, or a disk
                error.
        """
        trainer = self._trainer
        checkpoint = load_newest(
            self._dir, policies=tuple(trainer.by_policy), expect_architecture=trainer.digest
        )
        if checkpoint is None:
            self._folder.check_resumable()
            start = self._start()
            if start.tensors:
                trainer.load(start.tensors)
                _LOGGER.info("event=warm_start tensors=%d", len(start.tensors))
            for doubt in start.doubts:
                _LOGGER.info("event=warm_start_doubt detail=%r", doubt)
            self._save(self._trainer.snapshot())
            return False
        try:
            snapshot = Snapshot(checkpoint.tensors, checkpoint.state)
            self._trainer.restore(snapshot)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{checkpoint.path}: incomplete state: {error!r}") from error
        self._note_saved(snapshot)
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
        self._offered.append((return_mean, None))

    def obey(self, directive: SaveBest) -> None:
        """`offer_best`, as the monitor tells it."""
        self.offer_best(directive.return_mean)

    def write_soon(self) -> None:
        """Write at the next `write_if_due`, whether or not a checkpoint is due."""
        self._asked = True

    def offer_judged(self, return_mean: float, of: Snapshot) -> None:
        """Propose the policy that an evaluator has judged; no effect where another one judges."""
        if self._judge == "evaluator":
            self._offered.append((return_mean, of))

    def keep(self, snapshot: Snapshot) -> None:
        """Write this policy soon, to be kept for later (`evaluator.keep`)."""
        if self._spread:
            self._copies["kept"] = snapshot

    def copy_best(self) -> None:
        """Copy the policy as the best if an offered mean is the highest so far.

        With other ranks at their next meeting. The best by training is written with the next
        checkpoint.
        """
        if self._offered:
            self._trainer.rounds.when_whole(self._copy_best)

    def _copy_best(self) -> None:
        while self._offered:
            return_mean, of = self._offered.popleft()
            if self.best_return is not None and return_mean <= self.best_return:
                continue
            try:
                best = self._trainer.snapshot() if of is None else of
            except CheckpointError as error:
                self._note_failure(error)
                continue
            self._copies["best"] = best.judged(return_mean, self._by)
            self.best_return = return_mean

    def write_if_due(self) -> None:
        """Write if `run.checkpoint_every_s` have passed; a full disk is reported, not fatal.

        An offered best is copied at once. With other ranks the copy is made in their next meeting.
        """
        self.copy_best()
        every_s = min(self._every_s, _RETRY_AFTER_S) if self._error else self._every_s
        due = self._asked or self._clock() - self._tried_at >= every_s
        if due:
            self._asked = False
            self._tried_at = self._clock()
            self._trainer.rounds.when_whole(self._copy_newest)
        if any(mark in self._copies for mark in self._at_once) and (due or not self._error):
            self._write()

    def write(self) -> None:
        """Write now; an error is reported in heartbeats and the previous checkpoint stays."""
        self._tried_at = self._clock()
        self._copy_newest()
        self._write()

    def _copy_newest(self) -> None:
        try:
            self._copies[""] = self._trainer.snapshot()
        except CheckpointError as error:
            self._note_failure(error)

    def _write(self) -> None:
        for mark in _MARKS:
            copy = self._copies.pop(mark, None)
            if copy is None or (not mark and self._has(copy)):
                continue
            try:
                self._save(copy, mark)
            except CheckpointError as error:
                self._copies.setdefault(mark, copy)  # unless a newer one has come
                self._note_failure(error)
                return

    def heartbeat_fields(self) -> dict[str, Any]:
        """Counters, dropped steps, gauges and note of a heartbeat, at the same moment."""
        fields = self._trainer.heartbeat_fields()
        counters = fields["counters"]
        counters |= {
            "checkpoint_failures": self._failures,
            "unsaved_updates": max(0, updates_of_all(fields) - self._saved_updates),
            "unsaved_steps": max(0, self._trainer.learned_steps - self._saved_steps),
        }
        fields["gauges"]["checkpoint_age_s"] = self._clock() - self._saved_at
        if self.best_return is not None:
            fields["gauges"]["best_return"] = self.best_return
        return {**fields, "note": self._error}

    def _note_failure(self, error: CheckpointError) -> None:
        if not self._error:  # logged once: heartbeats count the others
            _LOGGER.warning("event=checkpoint_failed reason=%r", str(error))
        self._failures += 1
        self._error = printable(why_not_written(error, self._dir))[:_MOST_REASON]

    def _save(self, snapshot: Snapshot, mark: Mark = "") -> None:
        save_checkpoint(
            self._dir,
            tensors=snapshot.tensors,
            state=snapshot.state,
            label=snapshot.updates,
            keep=self._kept,
            mark=mark,
            spread=self._spread,
        )
        self._error = ""
        if not mark:  # a run resumes from one without
            self._note_saved(snapshot)

    def _has(self, snapshot: Snapshot) -> bool:
        """Whether the newest checkpoint says the same: steps may have been dropped since it."""
        saved = self._saved_updates, self._saved_env_steps
        return saved == (snapshot.updates, snapshot.env_steps)

    def _note_saved(self, snapshot: Snapshot) -> None:
        self._saved_at = self._clock()
        self._saved_updates, self._saved_env_steps = snapshot.updates, snapshot.env_steps
        self._saved_steps = snapshot.state["account"]["learned_steps"]

    def _saved_best(self) -> float | None:
        try:
            best = load_best(self._dir)
        except CheckpointError as error:  # none is whole: any new best is an improvement
            _LOGGER.warning("event=best_not_read reason=%r", str(error))
            return None
        if best is None:
            return None
        by = dict(best.state["judged"])
        return_mean = float(by.pop("return_mean"))
        return return_mean if by == self._by else None
