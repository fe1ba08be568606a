"""The table that `aclearn compress` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from services.compression import BATCH_SIZES, TableRow


def table_of(rows: Sequence[TableRow]) -> Table:
    """One line a way to run the policy; latencies are medians in ms a call."""
    table = Table(title="ways to run the policy, each with one thread")
    for name in ("policy", "bytes", *(f"batch {size}, ms" for size in BATCH_SIZES)):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for name in ("KL mean", "KL variance", "KL max", "same action", "greedy return"):
        table.add_column(name, justify="right")
    for row in rows:
        artifact, fidelity = row.artifact, row.artifact.fidelity
        score = "-" if row.mean_return is None else f"{row.mean_return:.2f}"
        table.add_row(
            row.name,
            f"{artifact.bytes:,}",
            *(f"{artifact.latency_ms[size]:.3f}" for size in BATCH_SIZES),
            f"{fidelity.kl_mean:.3g}",
            f"{fidelity.kl_variance:.3g}",
            f"{fidelity.kl_max:.3g}",
            f"{fidelity.agreement:.1%}",
            score,
        )
    return table
