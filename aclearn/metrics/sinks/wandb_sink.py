"""Metrics in Weights & Biases."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from aclearn.config import Group
from aclearn.metrics.sinks.sink import MetricsSink, SinkRun
from aclearn.metrics.sinks.tracked import decided, failed, figures, keep_id, known_id, sent_config

#: In the run's folder: the id of the run at Weights & Biases.
ID_FILE: Final = "wandb_id"


class WandbConfig(Group):
    """Weights & Biases; `pip install 'aclearn[wandb]'`."""

    project: str = Field(default="aclearn", min_length=1, description="project of the run")
    entity: str | None = Field(default=None, description="user or team; null: your own")
    group: str | None = Field(default=None, description="group of runs, e.g. of a sweep")
    tags: list[str] = Field(default_factory=list, description="tags of the run")
    mode: Literal["online", "offline"] = Field(
        default="online",
        description="offline: write into the run's folder; `wandb sync` sends it later",
    )


class WandbSink(MetricsSink):
    """Sends metrics lines, decisions and the summary to Weights & Biases, over `env_steps`.

    Figures have the names of `metrics.jsonl`; those of a mapping have a path, as in
    `wait_share/actor/emulator`. Decisions have the name of the tuner or strategy in front. The
    configuration is sent without `env.kwargs` and those of `evaluator.env`. A resumed run continues
    its run there. The key of the account comes from `wandb login` or WANDB_API_KEY.

    Raises:
        ModuleNotFoundError: wandb is not installed.
    """

    config_model = WandbConfig

    def __init__(self, **arguments: Any) -> None:
        if importlib.util.find_spec("wandb") is None:  # importing it takes a second
            raise ModuleNotFoundError("No module named 'wandb'", name="wandb")
        self._arguments = WandbConfig(**arguments).model_dump()
        self._run: Any = None

    def open(self, run: SinkRun) -> None:
        """Begin the run at Weights & Biases, or continue it."""
        import wandb

        number = known_id(run, ID_FILE) or keep_id(run.path, ID_FILE, secrets.token_hex(8))
        self._run = wandb.init(
            id=number,
            name=run.name,
            config=sent_config(run),
            dir=run.path,
            resume="allow",
            reinit="create_new",  # beside a run of wandb's that this process may have
            settings=wandb.Settings(console="off", silent=True),
            **self._arguments,
        )
        self._run.define_metric("*", step_metric="env_steps")

    def write(self, line: Mapping[str, Any]) -> None:
        """Log a metrics line."""
        self._run.log(figures(line))

    def write_decision(self, decision: Mapping[str, Any]) -> None:
        """Log a decision, at the newest line's `env_steps`."""
        self._run.log(decided(decision))

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """End the run there; one that failed is marked."""
        self._run.summary.update(figures(summary or {}))
        self._run.finish(exit_code=int(failed(summary)))
