"""Learning: batches, the loss, the update, and the published weights (needs torch)."""

from __future__ import annotations

from aclearn.learning.account import UNFIT, StepAccount
from aclearn.learning.accounts import Accounts
from aclearn.learning.acting_policies import ActingPolicies
from aclearn.learning.batch import Batch, assemble_batch
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.learning.joint_unrolls import JointUnrolls, OfOneNumber
from aclearn.learning.objective import make_objective
from aclearn.learning.observation_buffer import RecentObservations
from aclearn.learning.published import PublishedWeights
from aclearn.learning.recorded_batch import arrays_of, batch_of
from aclearn.learning.rounding import Rounding
from aclearn.learning.sources.audited import Audited
from aclearn.learning.sources.fifo import Fifo
from aclearn.learning.sources.memory import ReplayMemory
from aclearn.learning.sources.queue import QueueSource
from aclearn.learning.sources.replay import Replay
from aclearn.learning.sources.source import BatchSource
from aclearn.learning.stop_check import BatchStopped, StopCheck
from aclearn.learning.training_queue import TrainingQueue
from aclearn.learning.unroll_check import check_unroll, largest_unroll_bytes, too_old
from aclearn.learning.update import Learner
from aclearn.learning.update_report import Sums, UpdateReport

__all__ = [
    "UNFIT",
    "Accounts",
    "ActingPolicies",
    "Audited",
    "Batch",
    "BatchSource",
    "BatchStopped",
    "Fifo",
    "GradientWorker",
    "JointUnrolls",
    "Learner",
    "OfOneNumber",
    "PublishedWeights",
    "QueueSource",
    "RecentObservations",
    "Replay",
    "ReplayMemory",
    "Rounding",
    "StepAccount",
    "StopCheck",
    "Sums",
    "TrainingQueue",
    "UpdateReport",
    "arrays_of",
    "assemble_batch",
    "batch_of",
    "check_unroll",
    "largest_unroll_bytes",
    "make_objective",
    "too_old",
]
