"""A sweep and a population on disk, as their commands leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aclearn.population import Lineage, Origin
from aclearn.population.file import write_lineage

RATE = "optimiser.learning_rate"


def write_population(folder: Path) -> Path:
    """Three members and three rounds; member 2 dies, and copies member 1 twice."""
    folder.mkdir(parents=True)
    lineage = Lineage.begin([{RATE: 10.0 ** -(n + 1)} for n in range(3)], round_steps=10)
    for fitness in ([1.0, 5.0, None], [2.0, 6.0, 7.0], [3.0, 9.0, 8.0]):
        now = lineage.now
        for member, mean in zip(now.members, fitness, strict=True):
            after = (
                member.died("diverged", "not finite", 10, 0)
                if mean is None
                else member.judged(mean, 0.5, 10, "000001-1", 0)
            )
            now = now.with_member(after)
        lineage = lineage.with_now(now)
        best = lineage.new_best()
        lineage = lineage.model_copy(update={"best": best or lineage.best})
        origins = [Origin.stays(each) for each in now.standings]
        origins[2] = Origin(1, 1, {RATE: 2e-2})
        following = now.next(origins, round_steps=10, stop_after=None)
        lineage = lineage.with_next(following)
    write_lineage(folder, lineage)
    return folder


def trial(number: int, state: str, values: dict[str, Any], fitness: float | None) -> dict[str, Any]:
    """A trial of a sweep's file."""
    return {
        "number": number,
        "state": state,
        "values": values,
        "fitness": fitness,
        "judged": {},
        "runs": [f"trial-{number}-seed-1"],
        "reason": "" if state != "fail" else "<b>diverged</b>",
    }


def write_sweep(folder: Path, **changes: Any) -> Path:
    """Three trials: complete, pruned and failed; the first is the best."""
    folder.mkdir(parents=True)
    document = {
        "format": 1,
        "config": "cartpole",
        "fitness": "mean return of the evaluator's episodes, over 1 seeds",
        "search": {RATE: {"log": [1e-5, 1e-2]}, "policy.hidden": {"choices": [[64], [64, 64]]}},
        "trials": [
            trial(0, "complete", {RATE: 1e-3, "policy.hidden": [64]}, 9.0),
            trial(1, "pruned", {RATE: 1e-4, "policy.hidden": [64, 64]}, 3.0),
            trial(2, "fail", {RATE: 1e-2, "policy.hidden": [64]}, None),
        ],
        "best": 0,
        "importance": {"policy.hidden": 0.25, RATE: 0.75},
    }
    (folder / "sweep.json").write_text(json.dumps({**document, **changes}))
    (folder / "best.yaml").write_text("optimiser: {learning_rate: 0.001}\n")
    return folder
