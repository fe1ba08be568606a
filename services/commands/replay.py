"""`aclearn replay`: repeats the updates that a run's flight recorder has kept."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.commands.on_run_folders import PolicyOption, RunArgument
from services.commands.options import ForceOption

if TYPE_CHECKING:
    from aclearn.learning import UpdateReport
    from services.trainer.culprits import Culprit, Range
    from services.trainer.repeat import Repeated


def replay(
    run: RunArgument,
    until_nonfinite: Annotated[
        bool,
        typer.Option(
            "--until-nonfinite", help="stop at the first gradient that is not finite; name its rows"
        ),
    ] = False,
    policy: PolicyOption = None,
    generation: Annotated[
        int | None,
        typer.Option(min=0, help="start of the trainer that recorded; default: the newest"),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="where bits may differ: largest distance of the weights, as a share of the way "
            "that the recorded updates went",
        ),
    ] = 0.1,
    out: Annotated[
        Path | None, typer.Option(help="also write a line of JSON for each update to this file")
    ] = None,
    force: ForceOption = False,
) -> None:
    """Repeat the updates of the newest batches of a run (run.flight_recorder), and compare.

    It exits with 1 where the weights are not those that the run had.
    """
    from aclearn.runs import RunFolder, check_file, write_file
    from services.trainer.repeat import recorded_policies, repeat

    if out is not None:
        check_file(out, "--out", force=force)
    folder = RunFolder.open(run)
    lines: list[str] = []
    differs = False
    for name in recorded_policies(folder) if policy is None else (policy,):

        def note(batch: int, report: UpdateReport, name: str = name) -> None:
            lines.append(json.dumps(_line(name, batch, report)))

        made = repeat(
            folder, name, generation=generation, until_nonfinite=until_nonfinite, note=note
        )
        for text in words_of(made, tolerance):
            typer.echo(text)
        differs |= not made.agrees(tolerance)
    if out is not None:
        write_file(out, "".join(f"{line}\n" for line in lines).encode(), "--out")
        typer.echo(f"wrote {out}: {len(lines)} updates")
    if differs:
        raise typer.Exit(1)


def _line(policy: str, batch: int, report: UpdateReport) -> dict[str, Any]:
    finite = {
        name: value if math.isfinite(value) else str(value)
        for name, value in report.metrics.items()
    }
    return {
        "policy": policy,
        "batch": batch,
        "applied": report.applied,
        "steps": report.steps,
        **finite,
    }


def words_of(made: Repeated, tolerance: float) -> Iterator[str]:
    """What was repeated and how it compares, a line each."""
    last = made.first + made.batches - 1
    which = f"batches {made.first} to {last}" if made.batches else "no whole batch"
    yield (
        f"{made.policy}: repeated {which} of generation {made.generation}: {made.updates} updates"
        + (f", {made.refused} refused (gradient not finite)" if made.refused else "")
    )
    yield from made.doubts
    for each in made.comparisons:
        if each.equal:
            verdict = "the same bits"
        elif made.exact or not each.distance <= tolerance:
            verdict = "DIFFERENT"
        else:
            verdict = f"within the tolerance of {tolerance:g}"
        distance = "" if each.equal else f", distance {each.distance:.3g} of the way"
        yield f"{each.what}, after update {each.updates}: {verdict}{distance}"
    if not made.comparisons and made.bad is None:
        yield "nothing of the run lies within these updates to compare with"
    if (bad := made.bad) is not None:
        yield (
            f"batch {bad.batch}, after update {bad.updates}: the gradient of {bad.steps} steps is "
            "not finite"
        )
        for culprit in bad.culprits:
            yield f"  {_row(culprit)}"
        if not bad.culprits:
            yield "  no row gives such a gradient by itself; only their sum overflows"


def _row(culprit: Culprit) -> str:
    step = "all steps" if culprit.step is None else f"step {culprit.step}"
    actor = "the trainer itself" if culprit.actor is None else f"actor-{culprit.actor}"
    seen = ", ".join(
        f"{name} {_words(mine)} (whole batch {_words(culprit.others[name])})"
        for name, mine in culprit.observation.items()
    )
    figures = ", ".join(f"{name} {_words(its)}" for name, its in culprit.figures.items())
    return (
        f"{step} of column {culprit.column}: {actor}, environment {culprit.row}, policy version "
        f"{culprit.version}: {seen}, {figures}"
    )


def _words(its: Range) -> str:
    numbers = f"{its.least:.4g}" if its.least == its.most else f"{its.least:.4g} to {its.most:.4g}"
    return f"{numbers}, {its.not_finite} not finite" if its.not_finite else numbers
