"""Names and labels of Prometheus for the figures of a metrics line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from aclearn.metrics.names import CHAIN_STEPS, PART_SECONDS, WAIT_SHARE

#: Sums since a start that only grow. Sums of several processes are means in a line, and get smaller
#: when a process comes or goes: those are gauges.
_COUNTERS: Final = frozenset(
    (
        *("env_steps", "accounted_env_steps", "learned_steps", "learned_steps_since_start"),
        *("dropped_steps", "updates", "ended_batches", "episodes", "checkpoint_failures"),
        *("metrics_failures", PART_SECONDS, CHAIN_STEPS, "tuner_verdicts", "tuner_file_warnings"),
        *("evaluator_evaluations", "evaluator_restarts"),
        *("monitor_refused_messages", "monitor_refused_connections", "monitor_refused_keys"),
        *("monitor_refused_rights", "monitor_plugin_failures"),
        *("monitor_indicator_failures", "monitor_sink_failures", "monitor_sink_dropped"),
        *("monitor_directives", "monitor_directives_overruled", "monitor_directives_refused"),
    )
)
#: Mapping in a line → the labels of its levels.
_LEVELS: Final = {
    "dropped_steps": ("reason",),
    CHAIN_STEPS: ("chain",),
    PART_SECONDS: ("role", "part"),
    WAIT_SHARE: ("role", "state"),
    "tuner_verdicts": ("verdict",),
}
_NAMES: Final = {
    "pps": "predictions_per_s",
    "tps": "batches_per_s",
    "actor_refused_info": "actor_refused_infos",  # `_info` ends names of another kind
}
#: End of a name of ours → that of Prometheus's convention, which names base units.
_UNITS: Final = {
    "_per_s": "_per_second",
    "_s": "_seconds",
    "_share": "_ratio",
    "_fill": "_fill_ratio",
    "_busy": "_busy_ratio",
}
_LATENCY: Final = re.compile(r"compressor_latency_ms_(\d+)")
_VALID: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Sample(NamedTuple):
    """One number; `figure` is its name in the line, `name` that of its family, without `_total`."""

    figure: str
    name: str
    labels: Mapping[str, str]
    value: float
    counts: bool


def samples(line: Mapping[str, Any]) -> Iterator[Sample]:
    """Every number in a metrics line.

    A figure has the name of `metrics.jsonl` behind `aclearn_`, and a base unit: seconds, a ratio,
    per second. A name that Prometheus does not take, as a user's may be, is the label of
    `aclearn_figure`. Figures of one policy of several have its name as the label `policy`, those
    of the run an empty one.
    """
    policies: Mapping[str, Mapping[str, Any]] = line.get("policies", {})
    for policy, figures in {"": line, **policies}.items():
        for figure, value in figures.items():
            if figure == "policies":
                continue
            for labels, number in _numbers(value, _LEVELS.get(figure, ())):
                name, more, scale = _named(figure)
                yield Sample(
                    figure,
                    f"aclearn_{name}",
                    {"policy": policy, **more, **labels},
                    number * scale,
                    figure in _COUNTERS,
                )


def _named(figure: str) -> tuple[str, dict[str, str], float]:
    """Name of the family, labels and factor of a figure."""
    if found := _LATENCY.fullmatch(figure):
        return "compressor_latency_seconds", {"observations": found[1]}, 1e-3
    if not _VALID.fullmatch(figure):
        return "figure", {"figure": figure}, 1.0
    name = _NAMES.get(figure, figure)
    if "ms" in (parts := name.split("_")):
        return "_".join([*(part for part in parts if part != "ms"), "seconds"]), {}, 1e-3
    for end, unit in _UNITS.items():
        if name.endswith(end):
            return name.removesuffix(end) + unit, {}, 1.0
    return name, {}, 1.0


def _numbers(value: Any, levels: tuple[str, ...]) -> Iterator[tuple[dict[str, str], float]]:
    """Numbers with their labels; mappings of unknown levels, texts and null are left out."""
    if isinstance(value, int | float):
        yield {}, float(value)
    elif isinstance(value, Mapping) and levels:
        for label, part in value.items():
            for labels, number in _numbers(part, levels[1:]):
                yield {levels[0]: label, **labels}, number
