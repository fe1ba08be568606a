"""The commands that read several runs: plot and compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aclearn.errors import ArgumentError, RunFolderError
from aclearn.runs import check_file, is_population, write_file
from aclearn.views import Axis, Curve, find_curves, plot_curves, plot_tuner
from aclearn.views.learning_curves import BOTH
from aclearn.views.run_groups import group_runs
from services.commands.options import ForceOption

RunsArgument = Annotated[
    list[Path],
    typer.Argument(help="run folders, or folders of runs, e.g. runs/cartpole-seeds-1"),
]


def plot(
    runs: RunsArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            help="picture: .png, .pdf or .svg; default: NAME.png, NAME-tuner.png, or returns.png "
            "for several folders, in the current folder, where an older one is replaced"
        ),
    ] = None,
    tuner: Annotated[
        bool, typer.Option("--tuner", help="draw the tuner's trials of one run")
    ] = False,
    each: Annotated[
        bool, typer.Option("--each", help="a line for each run, not the mean over seeds")
    ] = False,
    axis: Annotated[
        list[Axis] | None,
        typer.Option(
            "--axis",
            help="what the returns are drawn over: wall time, steps of the environments, learned "
            "steps; may be repeated; default: wall and steps",
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Draw the returns of runs, e.g. aclearn plot runs/cartpole-seeds-1 --axis steps.

    Of one population it draws fitness and hyper-parameters over rounds, with lineage; with --each
    the returns of its members.

    Runs that differ by their seeds only are one line: the interquartile mean of five and more, the
    mean of fewer, in a 95 % interval. The others are told apart by the keys that differ.
    """
    if tuner and len(runs) != 1:
        raise RunFolderError(f"--tuner draws one run, got {len(runs)}; name one run folder")
    if tuner and (each or axis):
        raise ArgumentError("--tuner draws trials over time; leave out --each and --axis")
    replaces = force or out is None  # a run that goes on is drawn again
    if out is None:
        name = runs[0].resolve().name if len(runs) == 1 else "returns"
        out = Path(f"{name}-tuner.png" if tuner else f"{name}.png")
    check_file(out, "--out", force=replaces)
    if tuner:
        plot_tuner(runs[0], out)
    elif len(runs) == 1 and is_population(runs[0]) and not (each or axis):
        # imported here: it reads what no run has
        from aclearn.views.population_plot import plot_population

        plot_population(runs[0], out)
    else:
        curves = find_curves(runs)
        _tell_damaged(curves)
        plot_curves(curves, out, each=each, axes=axis or BOTH)
    typer.echo(f"wrote {out}")


def compare(
    runs: RunsArgument,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="also write the table: .csv or .json")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Compare groups of runs in a table, e.g. aclearn compare runs/cartpole-seeds-1.

    Runs that differ by their seeds only are one row. A median has the quartiles behind it; a run
    that has not reached its target counts as later than all others.
    """
    # imported here for its 0.1 s
    from aclearn.views.comparison import check_format, compare_group, file_of, print_table

    if to is not None:
        check_format(to, "--to")
        check_file(to, "--to", force=force)
    curves = find_curves(runs)
    _tell_damaged(curves)
    rows = [compare_group(group) for group in group_runs(curves)]
    print_table(rows)
    if to is not None:
        write_file(to, file_of(rows, to), "--to")
        typer.echo(f"wrote {to}")


def _tell_damaged(curves: Sequence[Curve]) -> None:
    for curve in curves:
        if curve.damaged:
            lines = "line is" if curve.damaged == 1 else "lines are"
            typer.echo(
                f"{curve.path / 'metrics.jsonl'}: {curve.damaged} damaged {lines} left out",
                err=True,
            )
