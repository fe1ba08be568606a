"""Metrics, the account of steps, waits, and the ways to look at a run."""

from aclearn.monitoring.bottleneck import (
    OTHER_WORKERS,
    Bottleneck,
    bottleneck_of,
    find_bottleneck,
)
from aclearn.monitoring.budget import TimeBudget, add_up, measure_here, part, waiting
from aclearn.monitoring.console import PlainConsole, RunConsole, open_console
from aclearn.monitoring.goal import EPISODES_FOR_TARGET, Goal
from aclearn.monitoring.ledger import LedgerError, StepLedger
from aclearn.monitoring.metrics import METRIC_NAMES, PART_SECONDS, BeatFields, RunView
from aclearn.monitoring.plot import Curve, plot_runs, read_curve
from aclearn.monitoring.progress import Progress, ProgressEstimate
from aclearn.monitoring.readings import (
    FREE_CORES,
    TUNER_FROZEN,
    TUNER_TEMPERATURE,
    TunerState,
    queue_fills,
)
from aclearn.monitoring.registry import Member, Registry
from aclearn.monitoring.tensorboard import TensorBoardWriter
from aclearn.monitoring.tuner import Tuner
from aclearn.monitoring.tuner_decision import Decision
from aclearn.monitoring.tuner_plot import plot_tuner
from aclearn.monitoring.unwritten import UnwrittenNotes
from aclearn.monitoring.waits import BusyShare, WaitMeter, shares

__all__ = [
    "EPISODES_FOR_TARGET",
    "FREE_CORES",
    "METRIC_NAMES",
    "OTHER_WORKERS",
    "PART_SECONDS",
    "TUNER_FROZEN",
    "TUNER_TEMPERATURE",
    "BeatFields",
    "Bottleneck",
    "BusyShare",
    "Curve",
    "Decision",
    "Goal",
    "LedgerError",
    "Member",
    "PlainConsole",
    "Progress",
    "ProgressEstimate",
    "Registry",
    "RunConsole",
    "RunView",
    "StepLedger",
    "TensorBoardWriter",
    "TimeBudget",
    "Tuner",
    "TunerState",
    "UnwrittenNotes",
    "WaitMeter",
    "add_up",
    "bottleneck_of",
    "find_bottleneck",
    "measure_here",
    "open_console",
    "part",
    "plot_runs",
    "plot_tuner",
    "queue_fills",
    "read_curve",
    "shares",
    "waiting",
]
