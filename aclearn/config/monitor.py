"""The configuration of the monitor and the tuner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from aclearn.config._explain import got
from aclearn.config._fields import Group, Whole


def _plugin(entry: Any) -> dict[str, dict[str, Any]]:
    """`module:Name` → arguments, of an entry with or without them."""
    named = {entry: None} if isinstance(entry, str) else entry
    if isinstance(named, Mapping) and len(named) == 1:
        [(name, arguments)] = named.items()
        arguments = {} if arguments is None else arguments
        if ":" in str(name) and isinstance(arguments, Mapping):
            return {str(name): dict(arguments)}
    raise ValueError(
        f"expected module:Name or one `module:Name: {{argument: value}}`, got {got(entry)}"
    )


class MonitorConfig(Group):
    """The process that knows the others, and what it shows."""

    heartbeat_every_s: float = Field(
        default=0.5,
        gt=0.0,
        le=60.0,
        description="time between two heartbeats of a role, in seconds",
    )
    silent_after_s: float = Field(
        default=60.0,
        gt=0.0,
        le=3600.0,
        description="silence after which a role counts as gone, in seconds",
    )
    port: Whole | None = Field(
        default=None,
        ge=1,
        le=65_535,
        description="TCP port at which roles find the monitor; null stays on this machine and "
        "uses a socket file",
    )
    plugins: list[Annotated[dict[str, dict[str, Any]], BeforeValidator(_plugin)]] = Field(
        default_factory=list,
        description="what of yours decides from the run's metrics: module:Name of a subclass of "
        "aclearn.control.MonitorPlugin each, or with arguments one `module:Name: {argument: "
        "value}`; where two contradict each other the later one is followed, and each of them "
        "before the tuner; an error together with run.deterministic, which has no monitor",
    )


TunedCount = Literal["predictors", "trainers", "actors"]


class TunerConfig(Group):
    """The annealing tuner, which changes worker counts while the run goes on (GA3C)."""

    enabled: bool = Field(
        default=False,
        description="let the tuner change worker counts while the run goes on; an error together "
        "with run.deterministic, since the tuner decides by the clock",
    )
    counts: list[TunedCount] = Field(
        default_factory=lambda: list[TunedCount](("predictors", "trainers")),
        description="what it may change: workers of each predictor process (predictors, NP; left "
        "out unless actors.inference is predictor), workers of the trainer (trainers, NT), actor "
        "processes that `aclearn train` runs (actors, NA)",
    )
    objective: Literal["learned_steps", "tps"] = Field(
        default="learned_steps",
        description="rate to raise: agent steps learned per second, those too old to be learned "
        "left out; or batches per second (GA3C's, which smaller batches raise as well)",
    )
    every_s: float = Field(
        default=15.0,
        gt=0.0,
        le=3600.0,
        description="length of the window in which a setting is measured, in seconds",
    )
    settle_s: float = Field(
        default=3.0,
        ge=0.0,
        le=600.0,
        description="pause between a change and its window, in seconds",
    )
    temperature: float = Field(
        default=0.05,
        ge=0.0,
        le=1.0,
        description="relative loss of rate that a move is still accepted with at a chance of 1/e, "
        "at the start",
    )
    cooling: float = Field(
        default=0.85,
        gt=0.0,
        le=1.0,
        description="factor of the temperature from one proposal to the next",
    )
    restart_search_share: float = Field(
        default=0.2,
        gt=0.0,
        lt=1.0,
        description="least fall of the kept setting's rate (or rise), as a share, that lets it "
        "search again when two windows in a row have it; where windows scatter by σ and the rate "
        "is known from n of them, 3 σ √(1 + 1/n) where that is more",
    )
    max_predictors: Whole = Field(
        default=8, ge=1, le=64, description="most predictor workers of a process"
    )
    max_trainers: Whole = Field(default=8, ge=1, le=64, description="most trainer workers")
    max_actors: Whole = Field(default=64, ge=1, le=500, description="most actor processes")
    remember: bool = Field(
        default=True,
        description="write the best setting of this machine and configuration into "
        "run.dir/.tuned and start from the one that is there",
    )

    @property
    def longest_gap_s(self) -> float:
        """Longest time between two heartbeats of the trainer that a window survives, in seconds."""
        return max(2.0, self.every_s / 2)
