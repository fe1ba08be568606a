"""The public Python API, which `import aclearn` forwards: the commands as functions."""

from __future__ import annotations

from aclearn.config import Config, load_config
from services.api.policy import Policy
from services.api.population import Population
from services.api.run import Run
from services.api.saved import ensemble, export, load, make_env, open_run, publish
from services.api.training import evolve, train, train_seeds
from services.commands.publishing.folder import Publication
from services.evaluator.evaluate import Evaluation

__all__ = [
    "Config",
    "Evaluation",
    "Policy",
    "Population",
    "Publication",
    "Run",
    "ensemble",
    "evolve",
    "export",
    "load",
    "load_config",
    "make_env",
    "open_run",
    "publish",
    "train",
    "train_seeds",
]
