"""Several saved policies as one, in a run folder of its own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from aclearn.errors import ArgumentError, RunFolderTaken, did_you_mean
from aclearn.policies.ensemble import JOININGS, Joining, ensemble_of, ensemble_tensors
from aclearn.population.file import judged_folder, member_folder, read_lineage
from aclearn.runs import (
    NEWEST,
    RunFolder,
    is_population,
    load_checkpoint,
    save_checkpoint,
)
from services.evaluator.saved_policy import SavedPolicy, load_run, run_of

#: Members of a population that are taken.
_USUAL: Final = 3


def members_of(
    paths: Sequence[Path], *, best: int | None = None, at: str | int = NEWEST
) -> list[SavedPolicy]:
    """The policies of several runs, or of the best members of a population, the best first.

    Args:
        best: number of members of a population; None: 3, or all if there are less.
        at: which checkpoint of each run; a member's is that of its last judgement.

    Raises:
        AclearnError: one of them cannot be used, or there are not enough.
    """
    if len(paths) == 1 and is_population(paths[0]):
        if str(at) != NEWEST:
            raise ArgumentError(
                "ensemble: --at is of runs; a population's members are those of the last "
                "judgement, so leave it out"
            )
        [population] = paths
        judged = read_lineage(population).judged
        ranked = [] if judged is None else judged.ranked
        wanted = min(_USUAL, len(ranked)) if best is None else best
        if len(ranked) < max(2, wanted):
            raise ArgumentError(
                f"ensemble: {population} has {len(ranked)} living members that were judged, "
                f"expected at least {max(2, wanted)}"
            )
        folders = [RunFolder.open(member_folder(population, each.number)) for each in ranked]
        return [
            _judged(folder, judged_folder(population, each.number) / f"{each.checkpoint}.json")
            for each, folder in zip(ranked[:wanted], folders[:wanted], strict=True)
        ]
    if best is not None:
        raise ArgumentError(
            "ensemble: --best is of a population; of several runs all are taken, so leave it out"
        )
    if len(paths) < 2:
        raise ArgumentError(
            f"ensemble: expected the folder of a population, or at least 2 run folders, got "
            f"{', '.join(map(str, paths)) or 'none'}"
        )
    runs = [load_run(path, at=at) for path in paths]
    for run in runs:
        if len(run.policies) > 1:
            raise ArgumentError(
                f"ensemble: {run.checkpoint.path} has several policies, which play together, and "
                "an ensemble plays alone; evaluate it as it is"
            )
    return [run.policy(None) for run in runs]


def _judged(folder: RunFolder, checkpoint: Path) -> SavedPolicy:
    return run_of(folder, load_checkpoint(checkpoint)).policy(None)


def ensemble(members: Sequence[SavedPolicy], by: str = "mean") -> SavedPolicy:
    """One policy of several, with the configuration and the counters of the first.

    Raises:
        ArgumentError: they have unlike spaces or action masks, or cannot be joined so.
    """
    if by not in JOININGS:
        near = did_you_mean(by, JOININGS)
        raise ArgumentError(f"ensemble: by {by!r:.40}: expected one of {', '.join(JOININGS)}{near}")
    joining: Joining = by  # type: ignore[assignment]
    first = members[0]
    if first.spec.masked:
        raise ArgumentError(
            f"ensemble: {first.config.env.id} has action masks, under which each member's "
            "probabilities would have to be taken before they are joined, and the joined network "
            "does not see the mask; evaluate the members one by one"
        )
    for other in members[1:]:
        if other.spec != first.spec:
            raise ArgumentError(
                f"ensemble: {other.checkpoint.path} has other spaces than "
                f"{first.checkpoint.path}: {other.spec}, expected {first.spec}"
            )
    architecture = ensemble_of([each.trained for each in members], joining)
    given = ensemble_tensors([each.weights for each in members])
    weights = {name: given[name] for name in architecture.tensor_shapes()}
    return replace(first, trained=architecture, weights=weights)


def write_ensemble(
    paths: Sequence[Path],
    to: Path,
    *,
    by: str = "mean",
    best: int | None = None,
    at: str | int = NEWEST,
) -> SavedPolicy:
    """Write an ensemble as a run folder with one checkpoint; arguments as of `members_of`.

    Raises:
        AclearnError: it cannot be made, or the folder exists.
    """
    members = members_of(paths, best=best, at=at)
    made = ensemble(members, by)
    if to.exists():
        raise RunFolderTaken(f"--to: {to} exists; name another folder, or remove it")
    config = made.config.with_run(name=to.name, dir=str(to.parent))
    folder = RunFolder.create(to.parent, to.name, config.to_yaml())
    try:
        save_checkpoint(
            folder.checkpoints_dir,
            tensors={f"weights/{name}": array for name, array in made.weights.items()},
            state={
                **made.checkpoint.state,
                "architecture": made.trained.digest(),
                "architecture_spec": made.trained.to_dict(),
                "judged": None,
                "members": [str(each.checkpoint.path.absolute()) for each in members],
            },
            label=made.updates,
            keep=1,
        )
    except BaseException:
        shutil.rmtree(folder.path, ignore_errors=True)  # it would be refused as an existing run
        raise
    finally:
        folder.close()
    return made
