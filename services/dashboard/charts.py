"""The charts of a run: which there are, and their curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aclearn.metrics.names import POLICIES
from aclearn.views.tuner_plot import TunerHistory
from services.dashboard.decisions import Decisions
from services.dashboard.run_index import IndexedRun
from services.dashboard.run_series import RunSeries

#: Axis → its words. Each is a figure of every metrics line.
AXES: Final = {
    "env_steps": "agent steps",
    "time_s": "wall time (s)",
    "learned_steps": "learned steps",
}
#: Figures of the weights that an evaluator judged: they stand where these were published.
_EVALUATED: Final = ("evaluator_return_mean", "evaluator_compressed_return_mean")
#: Figures that tell when: of the run, also with several policies.
_WHEN: Final = ("evaluator_evaluations", "evaluator_env_steps", "evaluator_age_s")
#: Significant digits of a point.
_DIGITS: Final = 6

Columns = Mapping[str, NDArray[np.float64]]


class _Chart(NamedTuple):
    title: str
    figures: tuple[str, ...]
    marks: str | None = None


#: Figures of metrics lines; one that ends in "/" stands for all that begin so.
_CHARTS: Final = (
    _Chart("return", ("return_mean_100", *_EVALUATED), "strategies"),
    _Chart("KL", ("behaviour_kl", "behaviour_kl_estimate", "proximal_kl")),
    _Chart("lag (versions)", ("lag_mean", "lag_max")),
    _Chart("losses", ("policy_loss", "value_loss")),
    _Chart("entropy", ("entropy",)),
    _Chart("rates (steps/s)", ("env_steps_per_s", "learned_steps_per_s")),
    _Chart("compression: rung", ("compressor_rung",), "strategies"),
    _Chart("compression: size (bytes)", ("compressor_artifact_bytes",), "strategies"),
    _Chart("compression: latency (ms)", ("compressor_latency_ms_1", "compressor_latency_ms_8")),
    _Chart("compression: KL", ("compressor_kl_mean", "compressor_kl_max"), "strategies"),
    _Chart("queue fill", ("queue_fill", "predictor_queue_fill")),
    _Chart("dropped steps by reason", ("dropped_steps/",)),
)


def charts(run: IndexedRun, decisions: Decisions) -> list[dict[str, Any]]:
    """The charts that are not empty, JSON-able.

    Each has a title, a policy, a target, marks, and series of a figure in a frame of `curves`. The
    charts of the run come first, with the policy None; then those of each of several policies.
    """
    names = run.series.names
    line = run.series.newest
    parts: Mapping[str, Any] = line.get(POLICIES) or {}
    found = _charts_of(names, "", None, line)
    found += _tuner_charts(decisions.tuner)
    for policy in parts:
        found += _charts_of(names, f"{POLICIES}/{policy}/", policy, parts[policy])
    return found


def _charts_of(
    names: Sequence[str], prefix: str, policy: str | None, line: Mapping[str, Any]
) -> list[dict[str, Any]]:
    made = []
    for chart in _CHARTS:
        meant = [n for figure in chart.figures for n in names if _is_meant(n, prefix + figure)]
        if meant:
            target = line.get("target_return") if chart.title == "return" else None
            series = [_series_of(name, prefix) for name in meant]
            made.append(_made(chart.title, series, chart.marks, policy=policy, target=target))
    return made


def _series_of(name: str, prefix: str) -> dict[str, Any]:
    short = name.removeprefix(prefix)
    made = {"figure": name, "label": short.removeprefix("dropped_steps/"), "style": "line"}
    if short not in _EVALUATED:
        return {**made, "frame": "lines"}
    error = f"{name.removesuffix('_mean')}_standard_error"
    return {**made, "frame": "evaluations", "style": "dots", "error": error}


def _tuner_charts(history: TunerHistory | None) -> list[dict[str, Any]]:
    if history is None:
        return []
    counts = list[dict[str, Any]]()
    for name in history.counts:
        counts.append(_of_tuner(f"kept/{name}", name, "step"))
        if name not in history.fixed:
            counts.append(_of_tuner(f"tried/{name}", f"{name}: tried, not kept", "points"))
    rates = [
        _of_tuner("rate", "rate of kept counts", "points"),
        _of_tuner("rate of tried", "rate of tried counts", "points"),
        _of_tuner("baseline", "estimate", "line"),
    ]
    return [
        _made("tuner's counts", counts, "tuner"),
        _made("tuner's rates (per second)", rates, "tuner"),
    ]


def _of_tuner(figure: str, label: str, style: str) -> dict[str, Any]:
    return {"figure": figure, "label": label, "style": style, "frame": "tuner"}


def _made(
    title: str,
    series: list[dict[str, Any]],
    marks: str | None,
    *,
    policy: str | None = None,
    target: float | None = None,
) -> dict[str, Any]:
    return {"title": title, "policy": policy, "target": target, "marks": marks, "series": series}


def curves(
    run: IndexedRun, shown: Iterable[Mapping[str, Any]], decisions: Decisions
) -> dict[str, dict[str, list[Any]]]:
    """Frame → name → points of the curve; None where there is none. JSON-able.

    Every frame has the axes. "lines" has figures of metrics lines, "evaluations" those of an
    evaluator, "tuner" its readings. "marks of …" have texts.
    """
    wanted = [series for chart in shown for series in chart["series"]]
    names = {
        frame: [n for each in wanted if each["frame"] == frame for n in _names_of(each)]
        for frame in ("lines", "evaluations")
    }
    lines = on_axes(run.series.columns([*AXES, *names["lines"]]))
    found = {name: _points(of) for name, of in lines.items()}
    made: dict[str, dict[str, list[Any]]] = {"lines": found}
    if names["evaluations"]:
        columns = evaluations(run.series, names["evaluations"])
        made["evaluations"] = {name: _points(of) for name, of in columns.items()}
    if decisions.tuner is not None:
        made["tuner"] = _tuner_frame(decisions.tuner, lines)
    for by, marks in decisions.marks.items():
        places = {name: _points(of) for name, of in _places(marks.time_s, lines).items()}
        made[f"marks of {by}"] = {**places, "texts": marks.texts}
    return made


def evaluations(series: RunSeries, names: Iterable[str]) -> dict[str, NDArray[np.float64]]:
    """The columns of an evaluator's figures, a row for each evaluation, with the axes.

    Steps are those at which the weights were published, and times too.
    """
    all_names = list(dict.fromkeys([*AXES, *_WHEN, *names]))
    columns = series.columns(all_names)
    nothing = np.full(len(next(iter(columns.values()), [])), np.nan)
    of = {name: columns.get(name, nothing) for name in all_names}
    count = of["evaluator_evaluations"]
    known = np.isfinite(count) & np.isfinite(of["evaluator_env_steps"])
    known &= np.isfinite(of["evaluator_age_s"])
    new = known & (count != np.concatenate([[np.nan], count[:-1]])) if len(count) else known
    steps = of["evaluator_env_steps"]
    axes = {
        "env_steps": steps,
        "time_s": of["time_s"] - of["evaluator_age_s"],
        "learned_steps": _interpolated(steps, of["env_steps"], of["learned_steps"]),
    }
    return on_axes({name: {**of, **axes}[name][new] for name in all_names if name not in _WHEN})


def on_axes(columns: Columns) -> dict[str, NDArray[np.float64]]:
    """Columns whose axes never fall, also where a trainer goes back to its checkpoint."""
    return {name: np.fmax.accumulate(of) if name in AXES else of for name, of in columns.items()}


def _tuner_frame(history: TunerHistory, lines: Columns) -> dict[str, list[Any]]:
    kept = ~np.array(history.reverted, np.bool_)
    rates = np.array(history.rates)
    columns = {
        **_places(history.time_s, lines),
        "rate": np.where(kept, rates, np.nan),
        "rate of tried": np.where(kept, np.nan, rates),
        "baseline": np.array(history.baselines),
        **{f"kept/{name}": np.array(of) for name, of in history.kept.items()},
        **{f"tried/{n}": np.where(kept, np.nan, np.array(of)) for n, of in history.counts.items()},
    }
    return {name: _points(of) for name, of in columns.items()}


def _places(time_s: Sequence[float], lines: Columns) -> dict[str, NDArray[np.float64]]:
    """The places of some times along all axes."""
    at = np.array(time_s, np.float64)
    nothing = np.full(0, np.nan)
    known = lines.get("time_s", nothing)
    return {
        name: at if name == "time_s" else _interpolated(at, known, lines.get(name, nothing))
        for name in AXES
    }


def _interpolated(
    at: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    if len(x) != len(y):
        return np.full(len(at), np.nan)
    known = np.isfinite(x) & np.isfinite(y)
    return np.interp(at, x[known], y[known]) if known.any() else np.full(len(at), np.nan)


def _names_of(series: Mapping[str, Any]) -> list[str]:
    return [series[key] for key in ("figure", "error") if key in series]


def _is_meant(name: str, wanted: str) -> bool:
    return name.startswith(wanted) if wanted.endswith("/") else name == wanted


def _points(column: NDArray[np.float64]) -> list[float | None]:
    return [
        value
        if value.is_integer()
        else float(f"{value:.{_DIGITS}g}")
        if math.isfinite(value)
        else None
        for value in column.tolist()
    ]
