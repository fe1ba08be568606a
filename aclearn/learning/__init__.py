"""Learning: batches, the loss, the update, and the published weights (needs torch)."""

from aclearn.learning.batch import (
    Batch,
    assemble_batch,
    chosen_observations,
    rebuild_observations,
)
from aclearn.learning.devices import choose_amp, choose_device, cpu_has
from aclearn.learning.gradient import GradientSums, GradientWorker
from aclearn.learning.learner import Learner, UpdateReport
from aclearn.learning.loss import ActorCriticLoss, actor_critic_loss
from aclearn.learning.optimiser import learning_rate, make_optimiser
from aclearn.learning.parameters import ParameterStore, PublishedWeights
from aclearn.learning.queue import TrainingQueue
from aclearn.learning.recent import RecentObservations
from aclearn.learning.staging import HostStaging, PinnedStaging, Staging

__all__ = [
    "ActorCriticLoss",
    "Batch",
    "GradientSums",
    "GradientWorker",
    "HostStaging",
    "Learner",
    "ParameterStore",
    "PinnedStaging",
    "PublishedWeights",
    "RecentObservations",
    "Staging",
    "TrainingQueue",
    "UpdateReport",
    "actor_critic_loss",
    "assemble_batch",
    "choose_amp",
    "choose_device",
    "chosen_observations",
    "cpu_has",
    "learning_rate",
    "make_optimiser",
    "rebuild_observations",
]
