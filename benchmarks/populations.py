"""Selectors of populations at equal total steps: fitness on validation and on test, round by round.

    python benchmarks/populations.py --out DIR [--resume] [--tasks cartpole pendulum stocks]
        [--selectors genetic pbt mf_pbt random_search none] [--seeds 3] [--on batched]

Each population has 10 members. On CartPole and Pendulum the right answer is known: all learning
rates are far too low at first. `none` keeps the middle one of those, while `random_search` draws
from the whole range, so that its first values may be right. A population ends at its goal, or
after as many rounds as all others. `stocks` is population/stocks with a
smaller network and fewer steps, since a member may take some 20 CPU seconds; `none` has Table 3's
hyper-parameters.

A row of DIR/populations.csv is a round: `env_steps` of all members so far, and the mean returns of
the round's best (`fitness`), of the living members (`fitness_mean`) and of the best agent so far
(`best_fitness`), whose return on the test period is `test`. `cpu_s` is the mean of a member so far:
training and judgement, in one thread. A population's rows come at its end; `--resume` keeps those
that are there.

    python benchmarks/populations.py --table DIR/populations.csv --picture FILE.png

prints and draws the table.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: seconds are those of one core

import aclearn
from services.evaluator.play import play, players_of
from services.evaluator.saved_policy import load_run

SELECTORS = ("genetic", "pbt", "mf_pbt", "random_search", "none")
#: Task → configuration, its changes, and the learning rate of `none`.
TASKS: dict[str, tuple[str, dict[str, Any], float]] = {
    "cartpole": (
        "population/cartpole",
        {"population.rounds": 16, "run.stop_at_target": True, "evaluator.episodes": 10},
        3e-6,
    ),
    "pendulum": (
        "population/pendulum",
        {"population.rounds": 12, "evaluator.episodes": 10, "policy.hidden": [32, 32]},
        3e-6,
    ),
    "stocks": (
        "population/stocks",
        {
            "population.rounds": 6,
            "population.round_steps": 20_480,
            "trainer.epochs": 4,
            "policy.hidden": [64, 64],
        },
        2**-14,
    ),
}
#: The configurations' `run.target_return`, at which a population ends.
GOALS = {"cartpole": 475.0, "pendulum": -180.0}
MEMBERS = 10
FIELDS = (
    *("task", "selector", "seed", "round", "env_steps", "cpu_s", "fitness", "fitness_mean"),
    *("best_fitness", "test", "copies", "deaths"),
)


def settings(task: str, selector: str, seed: int) -> tuple[str, dict[str, Any]]:
    """The configuration of a population, and the keys that differ from it."""
    config, changes, rate = TASKS[task]
    keys = {**changes, "population.members": MEMBERS, "population.seed": seed}
    keys["run.seed"] = 100 * seed  # members have the seeds from there on
    if selector != "genetic":  # the configuration's own, with its argument
        keys["population.selector"] = selector
    if selector == "none":
        keys["optimiser.learning_rate"] = rate
    return config, keys


def test_return(best: Path) -> float:
    """Mean return of the best agent's episodes in the test period."""
    run = load_run(best)
    env = run.config.evaluator_env
    tested = env.model_copy(update={"kwargs": {**env.kwargs, "period": "test"}})
    [played] = play(
        replace(run, config=run.config.model_copy(update={"env": tested})),
        players_of(run, greedy=run.config.evaluator.greedy),
        episodes=run.config.evaluator.episodes,
        seed=0,
    ).values()
    return statistics.fmean(played.returns)


def rounds_of(out: Path, task: str, selector: str, seed: int, on: str) -> list[dict[str, Any]]:
    """Train a population; a row for each round."""
    config, keys = settings(task, selector, seed)
    name = f"{task}-{selector}-{seed}"
    shutil.rmtree(out / name, ignore_errors=True)
    rows: list[dict[str, Any]] = []
    spent, since, tested = 0.0, time.process_time(), (-1, "")

    def note(found: Mapping[str, Any]) -> None:
        nonlocal spent, since, tested
        spent += time.process_time() - since
        if task == "stocks" and tested[0] != found["best_round"]:
            tested = (found["best_round"], f"{test_return(out / name / 'best'):.5f}")
        rows.append(
            {
                **{"task": task, "selector": selector, "seed": seed, "round": found["round"]},
                "env_steps": found["env_steps"],
                "cpu_s": f"{spent / MEMBERS:.2f}",
                "fitness": f"{found['fitness_best']:.5g}",
                "fitness_mean": f"{found['fitness_mean']:.5g}",
                "best_fitness": f"{found['best_fitness']:.5g}",
                "test": tested[1],
                "copies": found["copies"],
                "deaths": found["deaths"],
            }
        )
        since = time.process_time()

    aclearn.evolve(config, {**keys, "run.dir": str(out), "run.name": name}, on=on, on_round=note)
    reached = float(rows[-1]["best_fitness"]) >= GOALS.get(task, float("inf"))
    if len(rows) < keys["population.rounds"] and not reached:
        raise SystemExit(f"{name} was stopped after {len(rows)} rounds; --resume begins it again")
    return rows


def read(table: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def run(out: Path, tasks: Sequence[str], selectors: Sequence[str], seeds: int, on: str) -> None:
    """Append the rows of those populations that have none."""
    table = out / "populations.csv"
    there = read(table) if table.exists() else []
    done = {(row["task"], row["selector"], int(row["seed"])) for row in there}
    # every selector with a seed before the next seed
    for seed, task, selector in itertools.product(range(1, seeds + 1), tasks, selectors):
        if (task, selector, seed) in done:
            continue
        rows = rounds_of(out, task, selector, seed, on)
        with table.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerows(rows)


def summary(rows: Sequence[Mapping[str, str]]) -> Iterator[list[str]]:
    """A head, then a row of each task and selector, with a value for each seed."""
    yield ["task", "selector", "best fitness", "last fitness", "steps to the goal, M", "test"]
    for task, selector in dict.fromkeys((row["task"], row["selector"]) for row in rows):
        mine = [row for row in rows if (row["task"], row["selector"]) == (task, selector)]
        by_seed = [
            [row for row in mine if row["seed"] == seed]
            for seed in sorted({row["seed"] for row in mine})
        ]
        goal = GOALS.get(task, float("inf"))
        reached = [
            next((int(row["env_steps"]) for row in each if float(row["best_fitness"]) >= goal), 0)
            for each in by_seed
        ]
        last = [each[-1] for each in by_seed]
        yield [
            task,
            selector,
            ", ".join(f"{float(row['best_fitness']):.4g}" for row in last),
            ", ".join(f"{float(row['fitness']):.4g}" for row in last),
            ", ".join(f"{steps / 1e6:.1f}" if steps else "–" for steps in reached)
            if task in GOALS
            else "",
            ", ".join(f"{float(row['test']):.4g}" for row in last if row["test"]),
        ]


def draw(rows: Sequence[Mapping[str, str]], picture: Path) -> None:
    """Fitness of the best agent so far over the steps of all members: each seed, and their mean."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    tasks = list(dict.fromkeys(row["task"] for row in rows))
    panels = [(task, "best_fitness") for task in tasks]
    panels += [
        (task, "test") for task in tasks if any(r["test"] for r in rows if r["task"] == task)
    ]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.6), squeeze=False)
    for axis, (task, column) in zip(axes[0], panels, strict=True):
        for number, selector in enumerate(SELECTORS):
            mine = [r for r in rows if (r["task"], r["selector"]) == (task, selector)]
            curves = [
                [(int(r["env_steps"]) / 1e6, float(r[column])) for r in mine if r["seed"] == seed]
                for seed in sorted({r["seed"] for r in mine})
            ]
            for curve in curves:
                axis.plot(*zip(*curve, strict=True), color=f"C{number}", alpha=0.3, linewidth=0.8)
            longest = max(curves, key=len, default=[])
            # one that has ended at its goal stays there
            means = [
                statistics.fmean(curve[min(at, len(curve) - 1)][1] for curve in curves)
                for at in range(len(longest))
            ]
            dot = "o" if len(longest) == 1 else None
            steps = [point[0] for point in longest]
            axis.plot(steps, means, color=f"C{number}", label=selector, marker=dot)
        axis.set(title=f"{task}: {'test' if column == 'test' else 'fitness'} of the best agent")
        axis.set(xlabel="agent steps of all members, M")
        axis.grid(alpha=0.3)
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)


def main() -> None:
    """Train populations, or draw their table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--selectors", nargs="+", choices=SELECTORS, default=list(SELECTORS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--on", default="batched")
    parser.add_argument("--table", type=Path, help="a table to print and draw")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    if given.table is not None:
        for row in summary(read(given.table)):
            print(" | ".join(row))
        if given.picture is not None:
            draw(read(given.table), given.picture)
        return
    if given.out is None:
        parser.error("--out: expected a folder")
    if (given.out / "populations.csv").exists() and not given.resume:
        parser.error(f"--out: {given.out} has populations; --resume adds those that are missing")
    given.out.mkdir(parents=True, exist_ok=True)
    run(given.out, given.tasks, given.selectors, given.seeds, given.on)


if __name__ == "__main__":
    main()
