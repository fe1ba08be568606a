"""A backtest as a picture and as one HTML file that needs no other."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aclearn.envs.trading.performance import Performance
from aclearn.metrics.seed_statistics import estimate
from services.backtest.result import Backtest, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHARES: Final = ("cumulative_return", "annual_return", "annual_volatility", "max_drawdown")
_OURS: Final = ("#1f77b4", "#d62728", "#17becf")
_COLOURS: Final = ("#555555", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b")
_STYLE: Final = (
    "body{font:15px system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.3rem .7rem;text-align:right;"
    "border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}"
    "svg{max-width:100%;height:auto}"
)
_COSTS: Final = ("costs", "turnover")


def table_of(result: Result, test: Backtest) -> list[tuple[str, ...]]:
    """Rows of texts: the heads, the policies' mean ± standard deviation, and the baselines."""
    names = Performance.names()
    if result.market.bars_per_day == 1:
        names = tuple(name for name in names if name != "sharpe_daily")  # the same number
    rows = [("", *(name.replace("_", " ") for name in names), *_COSTS)]
    for name, figures in result.figures(test).items():
        tracks = test.policies.get(name) or [test.baselines[name]]
        cells = [
            _cell([getattr(each, figure) for each in figures], share=figure in _SHARES)
            for figure in names
        ]
        cells.append(_cell([track.costs for track in tracks], share=True))
        cells.append(_cell([track.turnover for track in tracks], share=False))
        rows.append((name, *cells))
    return rows


def snapshots_of(test: Backtest) -> list[tuple[str, ...]]:
    """Rows of texts: the heads, and what each policy that was kept of a run has reached."""
    heads = ("snapshot of", "agent steps", "cumulative return")
    return [
        heads,
        *(
            (name, f"{steps:,}", f"{value - 1.0:.1%}")
            for name, points in test.snapshots.items()
            for steps, value in points
        ),
    ]


def png_of(result: Result) -> bytes:
    """Curves and drawdowns, a column for each cost."""
    return _drawn(result, "png")


def html_of(result: Result) -> str:
    """The same as one page, with tables and remarks."""
    parts = [f"<h1>Backtest of {html.escape(', '.join(result.names))}</h1>"]
    picture = _drawn(result, "svg").decode()
    parts.append(picture[picture.index("<svg") :])
    for test in result.tests:
        parts.append(f"<h2>Costs of {test.cost:.2%} of each trade</h2>")
        parts.append(_html_table(table_of(result, test)))
        if test.snapshots:
            parts.append(_html_table(snapshots_of(test)))
    parts.append("<h2>What the figures say</h2>")
    parts += [f"<p>{html.escape(said)}</p>" for said in result.remarks()]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Backtest</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def _cell(numbers: Sequence[float], *, share: bool) -> str:
    known = [number for number in numbers if not math.isnan(number)]
    if not known:
        return "-"
    show: Callable[[float], str] = "{:.1%}".format if share else "{:.2f}".format
    mean = show(float(np.mean(known)))
    return mean if len(known) == 1 else f"{mean} ± {show(float(np.std(known, ddof=1)))}"


def _html_table(rows: Sequence[tuple[str, ...]]) -> str:
    kinds = ("th", *["td"] * (len(rows) - 1))
    lines = [
        "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in row)
        for kind, row in zip(kinds, rows, strict=True)
    ]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _drawn(result: Result, form: str) -> bytes:
    from matplotlib import rc_context

    out = io.BytesIO()
    # neither a date nor random names in the file: one backtest is one picture
    undated: dict[str, Any] = {"Date": None} if form == "svg" else {}
    with rc_context({"svg.hashsalt": "aclearn"}):
        figure_of(result).savefig(out, format=form, dpi=120, metadata=undated)
    return out.getvalue()


def figure_of(result: Result) -> Figure:
    """Values and drawdowns over time, and what snapshots reach; a column for each cost."""
    from matplotlib.figure import Figure

    columns = len(result.tests)
    snapshots = any(test.snapshots for test in result.tests)
    rows = 3 if snapshots else 2
    figure = Figure(figsize=(6.0 * columns, 3.25 * rows), layout="constrained")
    axes = figure.subplots(
        rows, columns, sharex="row", sharey="row", squeeze=False, height_ratios=(2, 1, 1)[:rows]
    )
    for column, test in enumerate(result.tests):
        above, below = axes[0][column], axes[1][column]
        above.set_title(f"costs {test.cost:.2%}")
        for what, plot in (("values", above), ("drawdown", below)):
            times = test.first.times
            for (name, each), colour in zip(test.policies.items(), _OURS, strict=False):
                tracks = np.stack([getattr(track, what) for track in each])
                mean = estimate(tracks)
                label = f"{name}, {mean.name} of {len(tracks)}" if len(tracks) > 1 else name
                plot.plot(times, mean.value, color=colour, linewidth=1.8, label=label)
                if mean.low is not None and mean.high is not None:
                    plot.fill_between(times, mean.low, mean.high, color=colour, alpha=0.2, lw=0)
            for (name, track), colour in zip(test.baselines.items(), _COLOURS, strict=False):
                plot.plot(times, getattr(track, what), color=colour, linewidth=0.9, label=name)
            plot.tick_params("x", rotation=30)
            plot.grid(alpha=0.3)
        if snapshots:
            plot = axes[2][column]
            for name, points in test.snapshots.items():
                plot.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
            plot.set_xlabel("agent steps of training")
            plot.grid(alpha=0.3)
    if snapshots:
        axes[2][0].set_ylabel("final value of snapshots")
        axes[2][0].legend(fontsize="small")
    axes[0][0].set_ylabel("value of the account, 1 at the start")
    axes[1][0].set_ylabel("drawdown")
    axes[0][0].legend(fontsize="small")
    return figure
