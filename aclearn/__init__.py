"""aclearn: reinforcement learning with separate processes that exchange messages over ZeroMQ.

`train`, `load` and the other names of `services.api` are available here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from services.api import (
        Config,
        Evaluation,
        Policy,
        Population,
        Publication,
        Run,
        ensemble,
        evolve,
        export,
        load,
        load_config,
        make_env,
        open_run,
        publish,
        train,
        train_seeds,
    )

__version__ = "0.1.0"
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


def __getattr__(name: str) -> Any:
    if name in __all__:  # upwards, but lazily: no module of aclearn needs the packages above it
        importlib.import_module("aclearn.hidden_packages").check_packages()
        return getattr(importlib.import_module("services.api"), name)
    raise AttributeError(f"module 'aclearn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
