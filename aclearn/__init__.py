"""aclearn: reinforcement learning with separate processes that exchange messages over ZeroMQ.

`train`, `evaluate`, `load_config` and the other names of `services.api` are available here.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
_API = ("Config", "Evaluation", "evaluate", "load_config", "train")


def __getattr__(name: str) -> Any:
    if name in _API:  # upwards, but lazily: no module of aclearn needs the packages above it
        return getattr(importlib.import_module("services.api"), name)
    raise AttributeError(f"module 'aclearn' has no attribute {name!r}")
