"""The public Python API, which `import aclearn` forwards: the commands as functions."""

from __future__ import annotations

from aclearn.config import Config, load_config
from services.api.functions import export, load, make_env, open_run, train, train_seeds
from services.api.policy import Policy
from services.api.run import Run
from services.evaluator.evaluate import Evaluation

__all__ = [
    "Config",
    "Evaluation",
    "Policy",
    "Run",
    "export",
    "load",
    "load_config",
    "make_env",
    "open_run",
    "train",
    "train_seeds",
]
