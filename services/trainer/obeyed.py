"""The directives that a trainer obeys."""

from __future__ import annotations

from aclearn.control.directives import (
    Obeyed,
    SaveBest,
    SaveCheckpoint,
    SetEntropyCost,
    SetLearningRate,
)
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.trainer import Trainer
from services.trainer.trainers import Trainers


def obeyed_by(trainer: Trainer | Trainers, checkpoints: TrainerCheckpoints | None) -> Obeyed:
    """Kind → what it does; any thread may call it.

    Args:
        checkpoints: None: another rank saves, obeys, and tells this one.
    """
    if checkpoints is None:
        return {}
    return {
        SaveBest: checkpoints.obey,
        SaveCheckpoint: lambda directive: checkpoints.write_soon(),
        SetLearningRate: lambda directive: trainer.set(learning_rate=directive.rate),
        SetEntropyCost: lambda directive: trainer.set(entropy_cost=directive.cost),
    }
