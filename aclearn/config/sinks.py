"""The places that metrics go to: the list `metrics.sinks`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aclearn.config._fields import Group
from aclearn.config._named import NamedArguments


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


SINKS: dict[str, type[Group]] = {"wandb": WandbConfig}
"""The models of our sinks by their names."""


class SinkConfig(NamedArguments):
    """One sink; in YAML `name` or `name: {arguments}`."""

    table = SINKS
