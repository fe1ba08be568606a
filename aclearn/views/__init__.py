"""A run in a terminal, and plots."""

from __future__ import annotations

from aclearn.views.console import PlainConsole, RunConsole, open_console
from aclearn.views.curve import Curve, find_curves, read_curve, read_curves
from aclearn.views.learning_curves import figure_of_curves, plot_curves
from aclearn.views.progress import Progress, ProgressEstimate
from aclearn.views.seed_band import Axis
from aclearn.views.tuner_plot import plot_tuner
