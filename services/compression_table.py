"""The table that `aclearn compress` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from services.compression import BATCH_SIZES, WayToAct

# bytes are the longest; where the terminal is narrow, names are folded and figures stay whole
_FIGURE_WIDTH = 12


def table_of(ways: Sequence[WayToAct]) -> Table:
    """One column a way to run the policy; latencies are medians in ms a call."""
    table = Table(title="ways to run the policy, each with one thread")
    table.add_column("policy", no_wrap=True)
    for way in ways:
        table.add_column(way.name, justify="right", overflow="fold", min_width=_FIGURE_WIDTH)
    columns = [_figures(way) for way in ways]
    for measure in columns[0]:
        table.add_row(measure, *(figures[measure] for figures in columns))
    return table


def _figures(way: WayToAct) -> dict[str, str]:
    artifact, fidelity = way.artifact, way.artifact.fidelity
    return {
        "bytes": f"{artifact.bytes:,}",
        **{f"batch {size}, ms": f"{artifact.latency_ms[size]:.3f}" for size in BATCH_SIZES},
        "KL mean": f"{fidelity.kl_mean:.3g}",
        "KL variance": f"{fidelity.kl_variance:.3g}",
        "KL max": f"{fidelity.kl_max:.3g}",
        "same action": f"{fidelity.agreement:.1%}",
        "greedy return": "-" if way.mean_return is None else f"{way.mean_return:.2f}",
    }
