"""Several runs as curves: each group of equal settings is a line in its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from aclearn.metrics.names import POLICIES
from aclearn.views.curve import Curve, Points, settings_of
from aclearn.views.run_groups import group_runs
from aclearn.views.seed_band import Axis, seed_band
from services.dashboard.charts import AXES, evaluations, on_axes
from services.dashboard.run_index import IndexedRun

#: Figure of a comparison → its words.
COMPARED: Final = {
    "return_mean_100": "mean return of the newest 100 episodes",
    "evaluator_return_mean": "mean return of an evaluation",
    "behaviour_kl_estimate": "estimate of KL(μ‖π)",
    "lag_mean": "lag (versions)",
    "entropy": "entropy (nats)",
    "value_loss": "value loss",
    "explained_variance": "explained variance",
    "env_steps_per_s": "agent steps per second",
    "learned_steps_per_s": "learned steps per second",
}
_EVALUATED: Final = "evaluator_return_mean"
_AXES: Final = dict(zip(AXES, (Axis.STEPS, Axis.WALL, Axis.LEARNED), strict=True))


def compare(runs: Sequence[IndexedRun], figure: str, axis: str, *, each: bool) -> dict[str, Any]:
    """The curves of runs; JSON-able.

    Runs that differ by their seeds and names only are one line, as `aclearn plot` draws them. A run
    with several policies has a curve of each.

    Args:
        figure: one of `COMPARED`.
        axis: one of `AXES`.
        each: a line for each run instead.
    """
    made = [curve for run in runs for curve in _curves_of(run, figure)]
    missing = "an evaluation" if figure == _EVALUATED else "a value"
    lines = []
    for group in group_runs(made, each=each):
        band = seed_band([curve.training for curve in group.curves], _AXES[axis], missing=missing)
        ends = [None if end is None else end.tolist() for end in (band.low, band.high)]
        lines.append(
            {
                "label": group.label,
                "note": band.note if len(band.x) else "no value yet",
                "x": band.x.tolist(),
                "y": band.y.tolist(),
                "low": ends[0],
                "high": ends[1],
            }
        )
    targets = sorted({curve.target for curve in made if curve.target is not None})
    is_return = figure in ("return_mean_100", _EVALUATED)
    return {"figure": COMPARED[figure], "lines": lines, "targets": targets if is_return else []}


def _curves_of(run: IndexedRun, figure: str) -> list[Curve]:
    line = run.series.newest
    parts: Mapping[str, Any] = line.get(POLICIES) or {}
    settings = settings_of(run.settings)
    if not parts:
        return [_curve(run, None, _points(run, figure, ""), line, settings)]
    return [
        _curve(
            run,
            policy,
            _points(run, figure, f"{POLICIES}/{policy}/"),
            parts[policy],
            {**settings, "policy": policy} if settings else settings,
        )
        for policy in parts
    ]


def _curve(
    run: IndexedRun,
    policy: str | None,
    points: Points,
    line: Mapping[str, Any],
    settings: Mapping[str, str],
) -> Curve:
    # its id, so that trials of two sweeps are told apart
    return Curve(
        path=Path(run.id),
        training=points,
        target=line.get("target_return"),
        settings=settings,
        policy=policy,
    )


def _points(run: IndexedRun, figure: str, prefix: str) -> Points:
    """The lines that have the figure, and all axes."""
    name, error = prefix + figure, f"{prefix}evaluator_return_standard_error"
    if figure == _EVALUATED:
        columns = evaluations(run.series, [name, error])
    else:
        columns = on_axes(run.series.columns([*AXES, name]))
    wanted = [*AXES, name, *([error] if figure == _EVALUATED else [])]
    if any(each not in columns for each in wanted):
        return Points([], [], [], [])
    known = np.all([np.isfinite(columns[each]) for each in wanted], axis=0)
    of = {each: columns[each][known].tolist() for each in wanted}
    errors = tuple(of[error]) if figure == _EVALUATED else ()
    return Points(of["time_s"], of["env_steps"], of["learned_steps"], of[name], errors)
