"""Answers requests for weights: of actors, predictors, compressors and an evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aclearn.learning import RecentObservations
from aclearn.types import PolicyVersion
from aclearn.wire import (
    Message,
    NoNewerWeights,
    ObservationsRequest,
    Weights,
    WeightsRequest,
)
from aclearn.wire import RecentObservations as RecentObservationsReply
from services.role.asking_pace import AskingPace
from services.role.context import RoleContext
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.judging import Judging
from services.trainer.trainer import Trainer
from services.trainer.trainers import Trainers


class WeightsServer:
    """The trainer's server of weights. It belongs to one thread.

    Args:
        trainer: has not published yet.
        recent: policy → visited observations.
        checkpoints: take an evaluator's judgements, where it judges.

    Attributes:
        server, endpoint: of the endpoint `weights`, bound.
    """

    def __init__(
        self,
        context: RoleContext,
        trainer: Trainer | Trainers,
        recent: Mapping[str, RecentObservations],
        checkpoints: TrainerCheckpoints,
    ) -> None:
        config = context.config
        self._trainers, self._recent = trainer.by_policy, recent
        self._judging: Judging | None = None
        if config.evaluator.enabled:
            self._judging = Judging(
                trainer,
                every_steps=config.evaluator.every_steps,
                offer_best=checkpoints.offer_judged,
                keep=checkpoints.keep,
            )
        self._pace, self._clock = AskingPace(), context.clocks.decisions
        self.server, self.endpoint = context.serve("weights")

    def answer(self) -> None:
        """Answer the received requests."""
        for routing_id, envelope in self.server.receive(0.0):
            pause_s = self._pace.pause_s(routing_id, self._clock())
            self.server.send(routing_id, self._answer(envelope.message, pause_s))

    def close(self) -> None:
        """Close the socket."""
        self.server.close()

    def _answer(self, request: Any, pause_s: float) -> Message:
        if isinstance(request, ObservationsRequest):
            visited = self._recent[request.policy].sample(request.count)
            return RecentObservationsReply(
                dict(visited.observations),
                visited.masks,
                visited.length,
                visited.valid,
                visited.state,
                request.policy,
            )
        if isinstance(request, WeightsRequest):
            published = self._trainers[request.policy].published
            newer = published.newer_than(PolicyVersion(request.generation, request.version))
            if newer is not None:
                at, tensors = newer.at, dict(newer.tensors)
                return Weights(at.generation, at.version, tensors, request.policy, pause_s)
        elif self._judging is not None:
            return self._judging.answer(request)
        return NoNewerWeights(request.policy, pause_s)
