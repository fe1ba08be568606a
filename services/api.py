"""The public Python API, which `import aclearn` forwards: the commands as functions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aclearn.config import Config, load_config
from aclearn.launch import StopFlag, install_stop_signals
from services.evaluator.evaluate import Evaluation, evaluate
from services.launcher.local_run import train as run

__all__ = ["Config", "Evaluation", "evaluate", "load_config", "train"]


def train(
    config: Config | str | Path, overrides: Sequence[str] = (), *, resume: bool = False
) -> dict[str, Any]:
    """Train on this machine until the run's goal, its bound or a signal, as `aclearn train` does.

    Args:
        config: an argument of `load_config`, or its result.
        overrides: "key=value" each, for a configuration that is loaded here.
        resume: continue the existing run.

    Returns:
        The run's `summary.json`.

    Raises:
        AclearnError: the run cannot be started, a role died too often, or learning is lost.
        KeyboardInterrupt: a signal came before the run began.
    """
    loaded = config if isinstance(config, Config) else load_config(config, overrides)
    # only the main thread may handle signals; in others the caller must
    main = threading.current_thread() is threading.main_thread()
    with install_stop_signals() if main else StopFlag() as stop:
        ending = run(loaded, resume=resume, stop=stop)
    if ending is None:
        raise KeyboardInterrupt(stop.reason)
    return ending.checked_summary()
