"""Folders of runs with a configuration and metrics, without a process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def write_run(
    folder: Path,
    returns: Sequence[float | None],
    *,
    seed: int | None = None,
    target: float | None = None,
    every_s: float = 60.0,
    env: str = "CartPole-v1",
    evaluations: Sequence[float | None] = (),
    **optimiser: Any,
) -> Path:
    """A run with a line of metrics for each return; 2000 steps a line, of which 1900 are learned.

    An evaluation is in the line of its number and the next ones, until there is another one. Its
    weights are 1000 steps older, and its standard error is 0.5.

    Without a seed its configuration does not tell which other runs are of the same settings.
    """
    folder.mkdir(parents=True)
    run = {"name": folder.name, "dir": str(folder.parent), "target_return": target}
    run |= {} if seed is None else {"seed": seed}
    config = {"run": run, "env": {"id": env}, "optimiser": optimiser}
    (folder / "config.yaml").write_text(json.dumps(config))
    lines, reached, count = [], None, 0
    for n, value in enumerate(returns):
        if reached is None and None not in (target, value) and value >= target:
            reached = every_s * n
        if n < len(evaluations) and evaluations[n] is not None:
            count += 1
            evaluated = {
                "evaluator_return_mean": evaluations[n],
                "evaluator_return_standard_error": 0.5,
                "evaluator_env_steps": 2000 * n - 1000,
                "evaluator_evaluations": count,
            }
            given_at = every_s * (n - 0.5)
        lines.append(
            {
                **({"evaluator_evaluations": 0} if count == 0 else evaluated),
                "evaluator_age_s": every_s * n - given_at if count else None,
                "time_s": every_s * n,
                "env_steps": 2000 * n,
                "learned_steps": 1900 * n,
                "return_mean_100": value,
                "target_return": target,
                "reached_target_at_s": reached,
            }
        )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
