"""A run as JSON for the page and the report: flow, charts, decisions, logs. Read from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from aclearn.metrics import dropped_words, refusals, unwritten
from aclearn.metrics.formatting import amount, duration, evaluated, percent, score
from aclearn.views.flow import flow_of
from aclearn.views.progress import ProgressEstimate
from aclearn.views.run_state import read_goal
from services.dashboard.charts import charts, curves
from services.dashboard.decisions import read_decisions
from services.dashboard.monitor_view import monitor_view, roles_of
from services.dashboard.monitors import Told
from services.dashboard.run_index import IndexedRun
from services.dashboard.tail import tail

_LAST_BYTES: Final = 64 * 1024
_LOG_LINES: Final = 60
_LOGS: Final = 64
_MOST_TEXT: Final = 2000
#: Names of the values of `strategy_stage`.
_STAGES: Final = ("exploration", "improvement", "convergence")


def run_view(run: IndexedRun, told: Told | None = None) -> dict[str, Any]:
    """What the page shows of a run, but for its logs; JSON-able.

    Args:
        told: what the monitor of a live run has said; None for the files alone.
    """
    line = run.series.newest
    flow = asdict(flow_of(line, run.series.found, roles_of(told)))
    progress = ProgressEstimate(read_goal(run.path / "config.yaml")).observe(line)
    decisions = read_decisions(run.path)
    shown = charts(run, decisions)
    return {
        **run.row(),
        "flow": flow,
        "progress": asdict(progress),
        "figures": _figures(line),
        "compression": _compression(run),
        "dropped": dropped_words(line),
        "warnings": [*unwritten(line), *refusals(line), *_damage(run), *decisions.warnings],
        "decisions": decisions.tables,
        "charts": shown,
        "curves": curves(run, shown, decisions),
        "monitor": None if told is None else monitor_view(run, told),
    }


def logs(run: IndexedRun) -> dict[str, list[str]]:
    """Role's log → its newest lines."""
    folder = run.path / "logs"
    files = sorted(folder.glob("*.log"))[:_LOGS] if folder.is_dir() else []
    return {
        path.stem: [
            text[:_MOST_TEXT] for text in tail(path, _LAST_BYTES).splitlines()[-_LOG_LINES:]
        ]
        for path in files
    }


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


def _compression(run: IndexedRun) -> dict[str, str]:
    """The stage of the compression in words; {} before the first artifact."""
    line = run.series.newest
    size = line.get("compressor_artifact_bytes")
    words = {
        "Rung": _rung(run),
        "Stage": _said("strategy_stage", line, _stage),
        "Compressed share": _said("compressed_share", line, percent),
        "Size": None if size is None else f"{amount(size)}B",
        "Latency of 8": _said("compressor_latency_ms_8", line, "{:.3g} ms".format),
        "KL to the policy": _said("compressor_kl_mean", line, "{:.3g}".format),
        "Largest KL": _said("compressor_kl_max", line, "{:.3g}".format),
        "Made every": _said("compressor_artifact_interval_s", line, "{:.3g} s".format),
    }
    return {} if size is None else {name: said for name, said in words.items() if said is not None}


def _rung(run: IndexedRun) -> str | None:
    """The number of the rung and its chain."""
    number = run.series.newest.get("compressor_rung")
    group = run.settings.get("compressor")
    group = group if isinstance(group, Mapping) else {}
    ladder = group.get("ladder") or [group.get("chain") or [], []]
    if number is None or not isinstance(ladder, list) or not 0 <= number < len(ladder):
        return None if number is None else f"{number:.0f}"
    names = [
        each if isinstance(each, str) else next(iter(each), "") for each in ladder[int(number)]
    ]
    return f"{number:.0f}: {' → '.join(map(str, names)) or 'uncompressed'}"


def _stage(number: float) -> str:
    return _STAGES[int(number)] if 0 <= number < len(_STAGES) else f"{number:.0f}"


def _said(name: str, line: Mapping[str, Any], words: Callable[[float], str]) -> str | None:
    value = line.get(name)
    return None if value is None else words(value)


def _damage(run: IndexedRun) -> list[str]:
    count = run.series.damaged
    return [f"{count} lines of metrics.jsonl are damaged and left out"] if count else []
