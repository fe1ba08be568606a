"""Metrics, the account of steps, waits, and the ways to look at a run."""

from aclearn.monitoring.bottleneck import Bottleneck, find_bottleneck, queue_fills
from aclearn.monitoring.console import PlainConsole, RunConsole, open_console
from aclearn.monitoring.goal import EPISODES_FOR_TARGET, Goal
from aclearn.monitoring.ledger import LedgerError, StepLedger
from aclearn.monitoring.metrics import METRIC_NAMES, BeatFields, RunView
from aclearn.monitoring.plot import Curve, plot_runs, read_curve
from aclearn.monitoring.progress import Progress, ProgressEstimate
from aclearn.monitoring.registry import Member, Registry
from aclearn.monitoring.tensorboard import TensorBoardWriter
from aclearn.monitoring.waits import WaitMeter, shares

__all__ = [
    "EPISODES_FOR_TARGET",
    "METRIC_NAMES",
    "BeatFields",
    "Bottleneck",
    "Curve",
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
    "WaitMeter",
    "find_bottleneck",
    "open_console",
    "plot_runs",
    "queue_fills",
    "read_curve",
    "shares",
]
