"""The command backtest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aclearn.errors import ArgumentError
from aclearn.runs import check_file, write_file
from services.commands.on_run_folders import AtOption
from services.commands.options import ForceOption


def backtest(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="run folders on one market, populations, or folders of either, e.g. of five seeds"
        ),
    ],
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="DATE", help="first day; default: of the test period"),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="DATE", help="last day, also traded")
    ] = None,
    cost: Annotated[
        list[float] | None,
        typer.Option("--cost", help="of each trade, 0.001 is 0.1 %; may be repeated"),
    ] = None,
    sampled: Annotated[
        bool, typer.Option("--sampled", help="sample actions, not the most probable ones")
    ] = False,
    at: AtOption = "newest",
    best: Annotated[
        int, typer.Option(min=2, help="members of a population's ensemble, if it has so many")
    ] = 3,
    out: Annotated[
        Path, typer.Option(help="report: NAME.html, beside which NAME.png is written")
    ] = Path("backtest.html"),
    force: ForceOption = False,
) -> None:
    """Play runs on a period that they have not seen, beside simple portfolios, with costs.

    Of a population its best agent and an ensemble of its best members are played. Policies that
    `evaluator.keep` has kept of a run are played too, and drawn over the steps of its training.

    Runs with one test period are seeds. Runs whose test periods follow one another are the folds
    of a walk-forward test.
    """
    from rich.console import Console
    from rich.table import Table

    from services.backtest import report
    from services.backtest.result import backtest as play

    if (from_ is None) != (to is None):
        raise ArgumentError("--from and --to: name both or none")
    if out.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"--out: {out}: expected a name that ends in .html")
    picture = out.with_suffix(".png")
    for path in (out, picture):
        check_file(path, "--out", force=force)
    result = play(
        runs,
        period=None if from_ is None or to is None else (from_, to),
        costs=cost or (0.001, 0.002),
        greedy=not sampled,
        at=at,
        best=best,
    )
    for test in result.tests:
        table = Table(title=f"costs {test.cost:.2%}")
        heads, *rows = report.table_of(result, test)
        for head in heads:
            table.add_column(head, justify="right" if head else "left")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
    for said in result.remarks():
        typer.echo(said)
    write_file(out, report.html_of(result).encode(), "--out")
    write_file(picture, report.png_of(result), "--out")
    typer.echo(f"wrote {out} and {picture}")
