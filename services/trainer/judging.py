"""The version that an evaluator judges, from its publication to its judgement."""

from __future__ import annotations

import threading
from collections.abc import Callable

from aclearn.types import PolicyVersion
from aclearn.wire import Judgement, JudgementReply, JudgeRequest, NoNewerWeights, WeightsToJudge
from services.trainer.snapshot import Snapshot
from services.trainer.trainer import Trainer
from services.trainer.trainers import Trainers


class Judging:
    """Sets the version aside that an evaluator judges, with the trainer's state at that moment.

    A judgement comes long after its version, when the trainer has other weights. So the state of
    the version is copied as it is published, and the best checkpoint is written from this copy.
    There is one copy at a time: an evaluator asks for the next after its judgement. Thread-safe.

    Args:
        every_steps: `evaluator.every_steps`; None: a version is set aside as soon as one is asked
            for.
        offer_best: takes a mean return and the state that it is of.
        keep: takes each state that is set aside.
    """

    def __init__(
        self,
        trainer: Trainer | Trainers,
        *,
        every_steps: int | None,
        offer_best: Callable[[float, Snapshot], None],
        keep: Callable[[Snapshot], None] = lambda _: None,
    ) -> None:
        self._trainer, self._every_steps = trainer, every_steps
        self._offer_best, self._keep = offer_best, keep
        self._names = {
            policy: tuple(each.learner.architecture.acting().tensor_shapes())
            for policy, each in trainer.by_policy.items()
        }
        self._lock = threading.Lock()
        # what a run begins with too; a later trainer waits for a request, which may come much later
        self._wanted, self._due_steps = trainer.generation == 0, 0
        self._coming = self._given = False
        self._aside: Snapshot | None = None
        trainer.on_publish = self._look

    def answer(
        self, request: JudgeRequest | Judgement
    ) -> JudgementReply | WeightsToJudge | NoNewerWeights:
        """The answer to an evaluator's message."""
        with self._lock:
            aside = self._aside
            at = PolicyVersion(request.generation, request.version)
            if isinstance(request, Judgement):
                if aside is None or aside.at != at:  # of an earlier trainer, whose state is lost
                    return JudgementReply(False, request.policy)
                self._offer_best(request.return_mean, aside)
                return JudgementReply(True, request.policy)
            # with an interval in seconds a new evaluator judges what is new
            again = self._every_steps is None and self._given and at == PolicyVersion()
            if aside is None or aside.at <= at or again:
                # a second copy would take the place of the first one while that is judged
                self._wanted = not self._coming
                return NoNewerWeights(request.policy)
            self._given = True
        saved = aside.of_policy(request.policy).tensors
        tensors = {name: saved[f"weights/{name}"] for name in self._names[request.policy]}
        at, steps = aside.at, aside.env_steps
        return WeightsToJudge(at.generation, at.version, steps, tensors, request.policy)

    def _look(self) -> None:
        """Set the version aside that is being published, if one is wanted and due."""
        accounts = self._trainer.accounts.by_policy.values()
        steps = sum(account.env_steps + account.elsewhere for account in accounts)
        with self._lock:
            if not self._wanted or steps < self._due_steps:
                return
            self._wanted, self._due_steps = False, steps + (self._every_steps or 0)
            self._coming = True
        # with other ranks before the next update, when every account is known
        self._trainer.rounds.when_whole(self._set_aside)

    def _set_aside(self) -> None:
        aside = self._trainer.snapshot(whole=False)
        with self._lock:
            self._aside, self._coming, self._given = aside, False, False
        self._keep(aside)
