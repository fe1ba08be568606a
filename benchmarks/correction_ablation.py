"""Which correction matters: CartPole by correctors, lag and the actors' policy.

    python benchmarks/correction_ablation.py [--seeds 3] [--env-steps 300000] [--jobs 2]
        [--only TEXT]

The form is IMPALA's table 2 (Espeholt et al. 2018): four corrections, each with data of several
ages, here also from compressed policies. Every run is configs/cartpole.yaml with all roles in one
process, so its result depends on the seed alone and not on the machine's speed.

* correction: `vtrace` (with importance sampling), `1-step` (λ-returns, importance sampling),
  `epsilon` (GA3C's, ε = 0.01), `none` (λ-returns, weights 1).
* lag: each message with weights or an artifact brings those of so many versions before. `lag_mean`
  is the measured lag at the update.
* actors: `fp32`, `int8`, `pruned` (three quarters of the units, without fine-tuning).

One CSV row a run: `mean_return`, the mean over all agent steps of the mean return of 100 episodes
(the area under the curve), `last_return`, that mean at the end, and `reached_475`, the agent steps
until it was 475. Then a table of means over seeds on stderr.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: one run a core

from lagged import train_lagged

_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "cartpole.yaml"
CORRECTIONS = {
    "vtrace": "[vtrace: {lambda: 0.95}, importance_sampling]",
    "1-step": "[no_correction: {lambda: 0.95}, importance_sampling]",
    "epsilon": "[no_correction: {lambda: 0.95}, epsilon_correction: {epsilon: 0.01}]",
    "none": "[no_correction: {lambda: 0.95}]",
}
LAGS = (0, 8, 64)
ACTORS = {"fp32": "[]", "int8": "[int8, onnx]", "pruned": "[prune: 0.75, onnx]"}
FIELDS = (
    *("correction", "lag", "actors", "seed", "lag_mean", "env_steps"),
    *("mean_return", "last_return", "reached_475"),
)


@dataclass(frozen=True)
class Trial:
    """One run of the ablation."""

    correction: str
    lag: int
    actors: str
    seed: int

    def __str__(self) -> str:
        return f"{self.correction}-{self.lag}-{self.actors}-{self.seed}"


def run(trial: Trial, env_steps: int) -> dict[str, Any]:
    """Train, and give the row of the table."""
    overrides = [
        f"run.seed={trial.seed}",
        f"run.max_env_steps={env_steps}",
        f"correctors={CORRECTIONS[trial.correction]}",
        f"compressor.chain={ACTORS[trial.actors]}",
    ]
    trained = train_lagged(_CONFIG, overrides, trial.lag)
    lines = trained.lines
    return vars(trial) | {
        "lag_mean": round(sum(line["lag_mean"] for line in lines) / len(lines), 1),
        "env_steps": trained.env_steps,
        "mean_return": round(trained.mean_return, 1),
        "last_return": round(lines[-1]["return_mean_100"], 1),
        "reached_475": next((x["env_steps"] for x in lines if x["return_mean_100"] >= 475), ""),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Mean returns as Markdown: a row for each lag and actors' policy, a column a correction."""
    text = ["| actors | lag | " + " | ".join(CORRECTIONS) + " |", "|---" * 6 + "|"]
    for actors, lag in itertools.product(ACTORS, LAGS):
        cells = []
        for correction in CORRECTIONS:
            found = [
                float(row["mean_return"])
                for row in rows
                if (row["actors"], int(row["lag"]), row["correction"]) == (actors, lag, correction)
            ]
            mean = sum(found) / len(found) if found else 0.0
            cells.append(f"{mean:.0f} ({min(found):.0f}–{max(found):.0f})" if found else "")
        text.append(f"| {actors} | {lag} | " + " | ".join(cells) + " |")
    return "\n".join(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the ablation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--env-steps", type=int, default=300_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="part of CORRECTION-LAG-ACTORS-SEED")
    options = parser.parse_args(arguments)
    # all cells of a seed before the next seed
    cells = itertools.product(range(1, options.seeds + 1), ACTORS, LAGS, CORRECTIONS)
    trials = [Trial(correction, lag, actors, seed) for seed, actors, lag, correction in cells]
    trials = [trial for trial in trials if options.only in str(trial)]
    writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    writer.writeheader()
    rows = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for row in pool.map(run, trials, itertools.repeat(options.env_steps)):
            writer.writerow(row)
            sys.stdout.flush()
            rows.append(row)
    print(table(rows), file=sys.stderr)


if __name__ == "__main__":
    main()
