"""Metrics in trackio, which keeps them on this machine or in a Space of Hugging Face."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from aclearn.config import Group
from aclearn.metrics.sinks.sink import MetricsSink, SinkRun
from aclearn.metrics.sinks.tracked import decided, figures, sent_config


class TrackioConfig(Group):
    """trackio; `pip install 'aclearn[trackio]'`."""

    project: str = Field(default="aclearn", min_length=1, description="project of the run")
    group: str | None = Field(default=None, description="group of runs, e.g. of a sweep")
    space_id: str | None = Field(
        default=None,
        min_length=1,
        description="Space of Hugging Face that gets the metrics, as user/name; null: a file of "
        "this machine, in TRACKIO_DIR",
    )


class TrackioSink(MetricsSink):
    """Logs metrics lines, decisions and the summary to trackio, over `env_steps`.

    Names and what is sent of the configuration are as of `WandbSink`. A resumed run continues the
    newest run of its name in the project. The summary has `summary/` in front.

    Raises:
        ModuleNotFoundError: trackio is not installed.
    """

    config_model = TrackioConfig

    def __init__(self, **arguments: Any) -> None:
        if importlib.util.find_spec("trackio") is None:  # importing it takes seconds
            raise ModuleNotFoundError("No module named 'trackio'", name="trackio")
        self._arguments = TrackioConfig(**arguments).model_dump()
        self._run: Any = None
        self._env_steps = 0

    def open(self, run: SinkRun) -> None:
        """Begin the run at trackio, or continue it."""
        import trackio

        self._run = trackio.init(
            name=run.name,
            config=sent_config(run),
            resume="allow" if run.resumed else "never",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
            **self._arguments,
        )

    def write(self, line: Mapping[str, Any]) -> None:
        """Log a metrics line."""
        self._env_steps = line["env_steps"]
        self._run.log(figures(line), step=self._env_steps)

    def write_decision(self, decision: Mapping[str, Any]) -> None:
        """Log a decision, at the newest line's `env_steps`."""
        self._run.log(decided(decision), step=self._env_steps)

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Log the summary, and wait until everything is written."""
        if summary is not None:
            ended = {f"summary/{name}": value for name, value in figures(summary).items()}
            self._run.log(ended, step=self._env_steps)
        self._run.finish()
