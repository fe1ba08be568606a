"""Metrics in MLflow."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import Field

from aclearn.config import Group
from aclearn.metrics.sinks.sink import MetricsSink, SinkRun
from aclearn.metrics.sinks.tracked import (
    decided,
    failed,
    figures,
    keep_id,
    known_id,
    sent_config,
)

T = TypeVar("T")

#: In the run's folder: the id of the run at MLflow.
ID_FILE: Final = "mlflow_id"
#: MLflow's bounds of a batch and of a parameter's characters.
_MOST_METRICS, _MOST_OTHERS, _MOST_CHARACTERS = 1000, 100, 6000
#: Characters that MLflow takes in no name.
_REFUSED: Final = re.compile(r"[^/\w.\- ]")


class MlflowConfig(Group):
    """MLflow; `pip install 'aclearn[mlflow]'`."""

    tracking_uri: str | None = Field(
        default=None,
        min_length=1,
        description="address of the server, or of a database with the whole of mlflow installed; "
        "null: MLFLOW_TRACKING_URI, or MLflow's own default",
    )
    experiment: str = Field(default="aclearn", min_length=1, description="experiment of the run")
    tags: dict[str, str] = Field(default_factory=dict, description="tags of the run")


class MlflowSink(MetricsSink):
    """Sends metrics lines, decisions and the summary to MLflow, over `env_steps`.

    Names are as of `WandbSink`, with `_` for characters that MLflow does not take. Metrics are
    numbers; texts of decisions are left out, those of the summary are tags. What is sent of the
    configuration is under Parameters. A resumed run continues its run there.

    Raises:
        ModuleNotFoundError: mlflow is not installed.
    """

    config_model = MlflowConfig

    def __init__(self, **arguments: Any) -> None:
        if importlib.util.find_spec("mlflow") is None:  # importing it takes seconds
            raise ModuleNotFoundError("No module named 'mlflow'", name="mlflow")
        self._config = MlflowConfig(**arguments)
        self._client: Any = None
        self._id = ""
        self._env_steps = 0

    def open(self, run: SinkRun) -> None:
        """Begin the run at MLflow, or continue it."""
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = client = MlflowClient(tracking_uri=self._config.tracking_uri)
        if (number := known_id(run, ID_FILE)) is not None:
            self._id = number
            client.update_run(number, status="RUNNING")
            return
        name = self._config.experiment
        found = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if found is None else found.experiment_id
        made = client.create_run(experiment, tags=self._config.tags, run_name=run.name)
        self._id = keep_id(run.path, ID_FILE, made.info.run_id)
        parameters = [
            Param(_named(key), str(value)[:_MOST_CHARACTERS])
            for key, value in _dotted(sent_config(run))
        ]
        for part in _parts(parameters, _MOST_OTHERS):
            client.log_batch(self._id, params=part)

    def write(self, line: Mapping[str, Any]) -> None:
        """Log a metrics line."""
        self._env_steps = line["env_steps"]
        self._log(figures(line))

    def write_decision(self, decision: Mapping[str, Any]) -> None:
        """Log the numbers of a decision, at the newest line's `env_steps`."""
        self._log(decided(decision))

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """End the run there; one that failed is marked, one that goes on is left as it is."""
        if summary is None:
            return
        for name, value in figures(summary).items():
            if isinstance(value, str):
                self._client.set_tag(self._id, _named(name), value)
        self._client.set_terminated(self._id, "FAILED" if failed(summary) else "FINISHED")

    def _log(self, values: Mapping[str, float | str]) -> None:
        from mlflow.entities import Metric

        now_ms = int(1000 * time.time())
        metrics = [
            Metric(_named(name), float(value), now_ms, self._env_steps)
            for name, value in values.items()
            if not isinstance(value, str)
        ]
        for part in _parts(metrics, _MOST_METRICS):
            self._client.log_batch(self._id, metrics=part)


def _named(name: str) -> str:
    """The name in characters that MLflow takes, and without parts that a path would drop."""
    parts = _REFUSED.sub("_", name).split("/")
    return "/".join("_" if part in ("", ".", "..") else part for part in parts)


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _parts(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    for begin in range(0, len(items), most):
        yield items[begin : begin + most]
