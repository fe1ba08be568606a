"""The contract of a sink: takes the metrics lines and decisions of a run elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SinkRun:
    """The run of a sink.

    Attributes:
        path: its folder; a sink may keep files of its own there, such as the id of a remote run.
        config: every key of its configuration, as in `config.yaml`; `env.kwargs` in the clear.
        resumed: whether the run has written metrics before: it is resumed, or its monitor was
            restarted. The sink must continue what an earlier sink of this run has begun.
    """

    name: str
    path: Path
    config: Mapping[str, Any]
    resumed: bool


class MetricsSink:
    """Takes the metrics of a run elsewhere; named in `metrics.sinks`.

    The monitor makes it, and calls every method in a thread of its own, one call at a time in this
    order: `open`, then `write` and `write_decision` as the run goes on, then `close`. A slow sink
    never delays the run: up to 256 calls wait for it, and later ones are dropped and counted
    (`monitor_sink_dropped`).

    An error is counted (`monitor_sink_failures`) and logged, and the console names the first one.
    After an error of `open` the sink gets nothing more; after one of the other methods it gets the
    next call. The run is over when `close` is called: its error, or that it takes too long, is in
    `summary.json` (`sink_error`) and the last words of the run.

    Arguments are its own copies. A constructor must only keep its arguments: `aclearn train` also
    makes a sink before the start, to check it, and never opens that one.
    """

    def open(self, run: SinkRun) -> None:
        """Connect; called once, before all others."""

    def write(self, line: Mapping[str, Any]) -> None:
        """Take a metrics line, as in `metrics.jsonl`."""
        raise NotImplementedError

    def write_decision(self, decision: Mapping[str, Any]) -> None:
        """Take a decision, as in `tuner.jsonl` or `strategies.jsonl`.

        `decision["by"]` is "tuner" or the name of the strategy.
        """

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Finish within `metrics.sink_timeout_s`; the process ends after that.

        Args:
            summary: as in `summary.json`; None if this monitor has written none: the run goes on
                with the next monitor, or the disk is full.
        """
