"""Learning: batches, the loss, the update, and the published weights (needs torch)."""

from __future__ import annotations

from aclearn.learning.account import AccountError, StepAccount
from aclearn.learning.batch import Batch, assemble_batch
from aclearn.learning.frame_stack import chosen_observations, rebuild_observations
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.learning.objective import make_objective
from aclearn.learning.observation_buffer import RecentObservations
from aclearn.learning.published import PublishedWeights
from aclearn.learning.sources import BatchSource, Fifo, QueueSource, Replay, ReplayMemory
from aclearn.learning.staging import PinnedStaging, Staging
from aclearn.learning.stop_check import BatchStopped, StopCheck
from aclearn.learning.surrogate import Objective
from aclearn.learning.training_queue import TrainingQueue
from aclearn.learning.unroll_check import check_unroll, largest_unroll_bytes, too_old
from aclearn.learning.update import Learner
from aclearn.learning.update_report import Sums, UpdateReport

__all__ = [
    "AccountError",
    "Batch",
    "BatchSource",
    "BatchStopped",
    "Fifo",
    "GradientWorker",
    "Learner",
    "Objective",
    "PinnedStaging",
    "PublishedWeights",
    "QueueSource",
    "RecentObservations",
    "Replay",
    "ReplayMemory",
    "Staging",
    "StepAccount",
    "StopCheck",
    "Sums",
    "TrainingQueue",
    "UpdateReport",
    "assemble_batch",
    "check_unroll",
    "chosen_observations",
    "largest_unroll_bytes",
    "make_objective",
    "rebuild_observations",
    "too_old",
]
