"""The public Python API, which `import aclearn` forwards: what the commands do, as functions."""

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
        config: as `load_config` takes it, or what it has returned.
        overrides: "key=value" each, for a configuration that is loaded here.
        resume: go on with the run that is there.

    Returns:
        The run's `summary.json`.

    Raises:
        AclearnError: the run cannot be started, a role died too often, or learning is lost.
        KeyboardInterrupt: a signal came before the run began.
    """
    loaded = config if isinstance(config, Config) else load_config(config, overrides)
    # signals belong to the main thread; in another one the caller looks after them
    main = threading.current_thread() is threading.main_thread()
    with install_stop_signals() if main else StopFlag() as stop:
        ending = run(loaded, resume=resume, stop=stop)
    if ending is None:
        raise KeyboardInterrupt(stop.reason)
    return ending.checked_summary()
