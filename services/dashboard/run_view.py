"""A run as JSON for the page and the report: flow, curves, decisions, logs. Read from files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from aclearn.metrics import dropped_words, find_bottleneck, unwritten
from aclearn.metrics.formatting import amount, duration, evaluated, score
from aclearn.runs import STRATEGIES_FILE, TUNER_FILE
from aclearn.views.flow import flow_of
from aclearn.views.progress import ProgressEstimate
from aclearn.views.run_state import read_goal
from services.dashboard.run_index import IndexedRun

#: Axis → its words. Each is a figure of every metrics line.
AXES: Final = {
    "env_steps": "agent steps",
    "time_s": "wall time (s)",
    "learned_steps": "learned steps",
}
#: Title of a chart → figures in it, those that a run has.
CHARTS: Final = {
    "return": ("return_mean_100", "evaluator_return_mean", "judged_return"),
    "KL": ("behaviour_kl", "behaviour_kl_estimate", "compressor_kl_mean", "compressor_kl_max"),
    "lag (versions)": ("lag_mean", "lag_max"),
    "losses": ("policy_loss", "value_loss"),
    "entropy": ("entropy",),
    "rates (steps/s)": ("env_steps_per_s", "learned_steps_per_s"),
    "tuner's counts": ("tuner_predictors", "tuner_trainers", "tuner_actors"),
    "compression: rung": ("compressor_rung",),
    "compression: size (bytes)": ("compressor_artifact_bytes",),
    "compression: latency (ms)": (
        "compressor_latency_ms_1",
        "compressor_latency_ms_8",
        "compressor_compress_ms",
    ),
    "queue fill": ("queue_fill", "predictor_queue_fill"),
    "dropped steps": ("dropped_steps/",),
}
_LAST_BYTES: Final = 64 * 1024
_DECISIONS: Final = 50
_LOG_LINES: Final = 60
_LOGS: Final = 64
_MOST_TEXT: Final = 2000


def run_view(run: IndexedRun) -> dict[str, Any]:
    """What the page shows of a run, but for its curves; JSON-able."""
    line = run.series.newest
    flow = asdict(flow_of(line, find_bottleneck(line)))
    progress = ProgressEstimate(read_goal(run.path / "config.yaml")).observe(line)
    return {
        **run.row(),
        "flow": flow,
        "progress": asdict(progress),
        "figures": _figures(line),
        "dropped": dropped_words(line),
        "warnings": [*unwritten(line), *_damage(run)],
        "decisions": {
            name.removesuffix(".jsonl"): _last_lines(run.path / name)
            for name in (TUNER_FILE, STRATEGIES_FILE)
        },
    }


def curves(run: IndexedRun, names: Iterable[str]) -> dict[str, list[float | None]]:
    """Name → points of the curve; None where a line has no such figure.

    Args:
        names: of figures; one that ends in "/" stands for all that begin so.
    """
    wanted = dict[str, None]()
    for name in (*AXES, *names):
        known = [each for each in run.series.names if each.startswith(name)]
        wanted |= dict.fromkeys(known if name.endswith("/") else [name])
    return {
        name: [value if math.isfinite(value) else None for value in column.tolist()]
        for name, column in run.series.columns(list(wanted)).items()
    }


def charts(run: IndexedRun) -> dict[str, list[str]]:
    """Title → names of the figures that the run has, of the charts that are not empty."""
    names = run.series.names
    found = {
        title: [each for name in figures for each in names if _is_meant(each, name)]
        for title, figures in CHARTS.items()
    }
    return {title: figures for title, figures in found.items() if figures}


def logs(run: IndexedRun) -> dict[str, list[str]]:
    """Role's log → its newest lines."""
    folder = run.path / "logs"
    files = sorted(folder.glob("*.log"))[:_LOGS] if folder.is_dir() else []
    return {
        path.stem: [text[:_MOST_TEXT] for text in _tail(path).splitlines()[-_LOG_LINES:]]
        for path in files
    }


def _is_meant(name: str, wanted: str) -> bool:
    return name.startswith(wanted) if wanted.endswith("/") else name == wanted


def _figures(line: Mapping[str, Any]) -> dict[str, str]:
    """The numbers above the flow, in the words of the console."""
    value = line.get("return_mean_100")
    found = {
        "Return": "-" if value is None else score(value),
        "Evaluated": evaluated(line),
        "Agent steps": amount(line.get("env_steps")),
        "Learned steps": amount(line.get("learned_steps")),
        "Updates": amount(line.get("updates")),
        "Episodes": amount(line.get("episodes")),
        "In flight": amount(line.get("in_flight_steps")),
        "Dropped": amount(sum((line.get("dropped_steps") or {}).values())),
        "Time": duration(line.get("time_s")),
    }
    return {name: words for name, words in found.items() if words is not None}


def _damage(run: IndexedRun) -> list[str]:
    count = run.series.damaged
    return [f"{count} lines of metrics.jsonl are damaged and left out"] if count else []


def _last_lines(path: Path) -> list[Mapping[str, Any]]:
    found = list[Mapping[str, Any]]()
    for text in _tail(path).splitlines():
        try:
            line = json.loads(text, parse_constant=lambda name: None)
        except (ValueError, RecursionError):  # the first may be the end of a line
            continue
        if isinstance(line, dict):
            found.append(line)
    return found[-_DECISIONS:]


def _tail(path: Path) -> str:
    """The end of a text file; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _LAST_BYTES))
            return file.read(_LAST_BYTES).decode(errors="replace")
    except OSError:
        return ""
