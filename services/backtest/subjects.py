"""What a backtest plays: policies of runs, and best agents and ensembles of populations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aclearn.errors import ArgumentError
from aclearn.population.file import best_folder, member_folder, read_lineage
from aclearn.runs import RunFolder, is_population, kept_in, load_checkpoint, runs_in
from services.evaluator.ensemble import ensemble, members_of
from services.evaluator.saved_policy import SavedRun, load_run, run_of


@dataclass(frozen=True, eq=False)
class Subject:
    """A policy that is played.

    Attributes:
        line: with which others it has a mean.
        name: of its run or population.
        path: its folder.
        snapshots: policies of its run that were kept (`evaluator.keep`), the earliest first.
    """

    line: str
    name: str
    path: Path
    saved: SavedRun
    snapshots: Sequence[SavedRun] = field(default=())


def subjects_at(paths: Sequence[Path], *, at: str | int, best: int) -> list[Subject]:
    """What there is to play at these paths, each a run, a population or a folder of some.

    Raises:
        AclearnError: there is nothing at a path, or it cannot be used.
    """
    found = [subject for path in paths for subject in _at(path, at, best)]
    if not found:
        raise ArgumentError("aclearn backtest: expected run folders or populations, got none")
    named = {(each.name, each.path) for each in found}
    counts = Counter(name for name, _ in named)
    return [
        each if counts[each.name] == 1 else replace(each, name=str(each.path)) for each in found
    ]


def _at(path: Path, at: str | int, best: int) -> Iterator[Subject]:
    inside = sorted(each for each in path.iterdir() if is_population(each)) if path.is_dir() else []
    if is_population(path):
        yield from _of_population(path, at, best)
    elif (path / "config.yaml").is_file() or not path.is_dir():
        yield _of_run("policy", path, at, path)
    elif inside or (runs := runs_in(path)):
        for each in inside:
            yield from _of_population(each, at, best)
        for run in [] if inside else runs:
            yield _of_run("policy", run, at, run)
    else:
        raise ArgumentError(f"{path}: it is no run and no population, and has none in it")


def _of_run(line: str, path: Path, at: str | int, kept: Path) -> Subject:
    folder = RunFolder.open(kept)
    snapshots = [
        run_of(folder, load_checkpoint(each.path))
        for each in kept_in(folder.checkpoints_dir)
        if each.mark == "kept"
    ]
    return Subject(line, path.resolve().name, path, load_run(path, at=at), snapshots)


def _of_population(path: Path, at: str | int, best: int) -> Iterator[Subject]:
    lineage = read_lineage(path)
    if lineage.best is None:
        raise ArgumentError(f"{path}: no member of it was judged yet; there is no best agent")
    name = path.resolve().name
    kept = member_folder(path, lineage.best.member)
    agent = _of_run("best agent", best_folder(path), at, kept)
    yield Subject(agent.line, name, path, agent.saved, agent.snapshots)
    living = [] if lineage.judged is None else lineage.judged.ranked
    if (size := min(best, len(living))) > 1:
        joined = ensemble(members_of([path], best=size))
        run = SavedRun(joined.config, joined.checkpoint, {joined.name: joined})
        yield Subject(f"ensemble of {size}", name, path, run)
