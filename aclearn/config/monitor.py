"""The configuration of the monitor and the tuner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Strict
from typing_extensions import override

from aclearn.config._fields import Group, Whole
from aclearn.config._named import Named, NamedArguments
from aclearn.config.actors import MAX_PROCESSES


class StrategyArguments(Group):
    """Common arguments of strategies."""

    dwell_s: float = Field(
        default=10.0,
        gt=0.0,
        le=86_400.0,
        description="least time between two changes by this strategy, in seconds",
    )


class UsersStrategyArguments(StrategyArguments):
    """Arguments of a user's own strategy: its class takes the further keys."""

    model_config = ConfigDict(extra="allow")


class StrategyConfig(NamedArguments):
    """One strategy; in YAML `name` or `name: {arguments}`."""

    table = Named("aclearn.control.strategies:STRATEGIES")
    users = UsersStrategyArguments


class SinkConfig(NamedArguments):
    """One sink of metrics; in YAML `name` or `name: {arguments}`."""

    table = Named("aclearn.metrics.sinks:SINKS")


class UsersClass(NamedArguments):
    """One entry that names a class of the user's own."""

    form = "module:Name or one `module:Name: {argument: value}`"


class MonitorConfig(Group):
    """The monitor and its plug-ins."""

    heartbeat_every_s: float = Field(
        default=0.5,
        gt=0.0,
        le=60.0,
        description="time between two heartbeats of a role, in seconds",
    )
    heartbeats_per_s: float = Field(
        default=600.0,
        gt=0.0,
        le=1e6,
        description="most heartbeats of all actors in a second; with more of them each sends its "
        "own less often, but four within monitor.silent_after_s",
    )
    silent_after_s: float = Field(
        default=60.0,
        gt=0.0,
        le=3600.0,
        description="silence after which a role counts as dead, in seconds",
    )
    max_processes: Whole = Field(
        default=4096,
        ge=4,
        le=MAX_PROCESSES,
        description="most processes of the run; the monitor refuses more, and a trainer keeps the "
        "counts of as many actors. Each needs an open file of the monitor and two of the trainer "
        "(ulimit -n)",
    )
    port: Whole | None = Field(
        default=None,
        ge=1,
        le=65_535,
        description="TCP port of the monitor; null: a socket file, on this machine only",
    )
    plugins: Annotated[tuple[UsersClass, ...], Strict(False)] = Field(
        default=(),
        description="decisions of yours from the run's metrics: subclasses of "
        "aclearn.control.MonitorPlugin; a later plug-in overrules an earlier one, and each "
        "overrules the tuner and the strategies",
    )
    strategies: Annotated[tuple[StrategyConfig, ...], Strict(False)] = Field(
        default=(),
        description="strategies that adapt the compression while the run goes on; yours are "
        "subclasses of aclearn.control.Strategy; one may choose the rung of compressor.ladder, and "
        "one the share of unrolls",
    )
    indicators: Annotated[tuple[UsersClass, ...], Strict(False)] = Field(
        default=(),
        description="figures of yours in the metrics: subclasses of "
        "aclearn.metrics.indicators.Indicator; each sees those before it",
    )
    return_window_s: float = Field(
        default=60.0,
        gt=0.0,
        le=3600.0,
        description="window of return_slope_per_s, return_slope_per_step and reward_gap, in "
        "seconds; longer while it holds few episodes",
    )

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        step_s, least_s = config.actors.step_timeout_s, 2 * self.heartbeat_every_s
        if self.silent_after_s < least_s:
            also = f", and to more than actors.step_timeout_s = {step_s:g} s"
            yield (
                f"monitor.silent_after_s: {self.silent_after_s:g} s would count a role as dead "
                f"after one late heartbeat; set it to {least_s:g} s or more, twice "
                f"monitor.heartbeat_every_s{also if least_s <= step_s else ''}"
            )
        elif self.silent_after_s <= step_s:
            yield (
                f"monitor.silent_after_s: {self.silent_after_s:g} s would kill an actor during a "
                f"step, which may take actors.step_timeout_s = {step_s:g} s; set it to more, "
                f"or that to {self.silent_after_s / 2:g} s"
            )
        if self.strategies and config.run.deterministic:
            yield (
                "monitor.strategies: strategies decide by the clock, so run.deterministic cannot "
                "hold; set that to false, or remove them"
            )


class MetricsConfig(Group):
    """Where the metrics go, beside the run folder."""

    sinks: Annotated[tuple[SinkConfig, ...], Strict(False)] = Field(
        default=(),
        description="other places that take each metrics line and decision; yours are subclasses "
        "of aclearn.metrics.sinks.MetricsSink",
    )
    sink_timeout_s: float = Field(
        default=5.0,
        gt=0.0,
        le=30.0,
        description="time for all sinks to finish at the run's end, in seconds; after a signal "
        "supervisor.stop_timeout_s bounds it too",
    )
    prometheus_port: Whole | None = Field(
        default=None,
        ge=1,
        le=65_535,
        description="TCP port of the monitor, at network.bind_host, where Prometheus reads the "
        "newest line: http://…:port/metrics; null: none",
    )


TunedCount = Literal["predictors", "trainers", "actors"]

TUNED_COUNTS: dict[str, tuple[str, str]] = {
    "predictors": ("predictor", "workers"),
    "trainers": ("trainer", "workers"),
    "actors": ("actors", "processes"),
}
"""The group and key of each count that the tuner can change."""


class TunerConfig(Group):
    """The annealing tuner, which changes worker counts during the run (GA3C)."""

    enabled: bool = Field(
        default=False,
        description="change worker counts during the run; not with run.deterministic, since the "
        "tuner uses the clock",
    )
    counts: list[TunedCount] = Field(
        default_factory=lambda: list[TunedCount](("predictors", "trainers")),
        description="counts to change: predictors (NP, workers of each predictor process), "
        "trainers (NT, workers of the trainer), actors (NA, actor processes of `aclearn train`)",
    )
    objective: Literal["learned_steps", "tps"] = Field(
        default="learned_steps",
        description="rate to raise: agent steps learned per second, or batches per second (tps, "
        "GA3C's; smaller batches raise it too)",
    )
    every_s: float = Field(
        default=15.0,
        gt=0.0,
        le=3600.0,
        description="length of a measurement window, in seconds",
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
        description="relative loss of rate that a move is accepted with at probability 1/e, at "
        "the start",
    )
    cooling: float = Field(
        default=0.85,
        gt=0.0,
        le=1.0,
        description="factor of the temperature after each proposal",
    )
    restart_search_share: float = Field(
        default=0.2,
        gt=0.0,
        lt=1.0,
        description="least relative change of the kept counts' rate in two windows in a row that "
        "restarts the search; at least 3 σ √(1 + 1/n), σ the scatter of windows and n the windows "
        "measured",
    )
    max_predictors: Whole = Field(
        default=8, ge=1, le=64, description="most predictor workers of a process"
    )
    max_trainers: Whole = Field(default=8, ge=1, le=64, description="most trainer workers")
    max_actors: Whole = Field(
        default=64, ge=1, le=MAX_PROCESSES, description="most actor processes"
    )
    remember: bool = Field(
        default=True,
        description="keep the best counts of this machine and configuration in run.dir/.tuned, "
        "and start from them",
    )

    @property
    def longest_gap_s(self) -> float:
        """Longest valid time between two heartbeats of the trainer in a window, in seconds."""
        return max(2.0, self.every_s / 2)

    @override
    def contradictions(self, config: Any) -> Iterator[str]:
        if not self.enabled:
            return
        if config.run.deterministic:
            yield (
                "tuner.enabled: a tuner decides by the clock, so run.deterministic cannot hold; "
                "set one of them to false"
            )
        if not self.counts:
            yield (
                "tuner.counts: there is nothing to change; set it to [predictors, trainers], or "
                "tuner.enabled to false"
            )
        elif set(self.counts) == {"predictors"} and config.actors.inference == "local":
            yield (
                "tuner.counts: actors choose their actions, so that there are no predictors to "
                "change; set actors.inference to predictor, or tuner.enabled to false"
            )
        heartbeat_s = config.monitor.heartbeat_every_s
        if 2 * heartbeat_s > self.longest_gap_s:
            yield (
                f"monitor.heartbeat_every_s: {heartbeat_s:g} s is too slow for windows of "
                f"tuner.every_s = {self.every_s:g} s, since one late heartbeat discards a window; "
                f"lower it to {self.longest_gap_s / 2:g} s or less, "
                f"or raise tuner.every_s to {4 * heartbeat_s:g} s or more"
            )
        for count, (section, number) in TUNED_COUNTS.items():
            if count not in self.counts or (
                count == "predictors" and config.actors.inference == "local"
            ):
                continue
            given, most = getattr(getattr(config, section), number), getattr(self, f"max_{count}")
            if given > most:
                yield (
                    f"{section}.{number}: {given} is above tuner.max_{count}, which is {most}; "
                    f"raise that to {given} or more, or lower this to {most}"
                )
