"""A run in a terminal, and plots."""

from __future__ import annotations

from aclearn.views.console import PlainConsole, RunConsole, open_console
from aclearn.views.learning_curves import Curve, plot_runs, read_curve
from aclearn.views.progress import Progress, ProgressEstimate
from aclearn.views.tuner_plot import plot_tuner
