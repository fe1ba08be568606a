"""Learning by number of environments and of steps in a return, and plots of resident figures.

    python benchmarks/resident_curves.py variance --csv FILE [--only Pendulum] [--seeds 1 2 3]
    python benchmarks/resident_curves.py draw-variance FILE PICTURE.png
    python benchmarks/resident_curves.py draw-scaling FILE PICTURE.png [--by-cpu]

`variance` trains CartPole (A2C) and Pendulum (PPO) by the shipped configurations, in turn, with 10
to 10 000 environments and with returns of 1 step and of up to 5 (figures 3 and 4 of Sha & Lan
2024); `--only "Pendulum by HDDPG"` does so by the paper's algorithm 2. Every run has five steps of
each environment a batch and ends after so many CPU seconds of one thread, which other programs
hardly change. A row a CPU second: the mean of the last return of every environment in which an
episode ended. `draw-scaling` draws the rows of `resident.py scaling --csv FILE` (figure 2).
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FIELDS = ("env", "envs", "n_step", "seed", "cpu_s", "steps", "updates", "return")
COUNTS = (10, 100, 1000, 10_000)
#: Correctors by the number of steps in a return.
_VTRACE = "[{vtrace: {lambda: %d}}, importance_sampling]"
N_STEPS = {1: _VTRACE % 0, 5: _VTRACE % 1}
#: Configuration, CPU seconds of a run, and the target return.
RUNS = {
    "CartPole": ("resident/cartpole", 12, 475),
    "Pendulum": ("resident/pendulum", 24, -200),
    "Pendulum by HDDPG": ("resident/pendulum_hddpg", 24, -200),
}
#: Seconds of the axis that are compared in a table, from the end.
_LAST_SHARE = 0.25


def learned(name: str, envs: int, n_step: int, seed: int, cpu_s: float) -> Iterator[list[Any]]:
    """Rows of one run, FIELDS without its settings: a row each CPU second."""
    from aclearn.config import load_config
    from aclearn.learning.sources.source import SourceAround
    from aclearn.resident import resident_env_of
    from aclearn.resident.source import ResidentSource
    from services.trainer.build import make_trainer

    by_hddpg = RUNS[name][0].endswith("hddpg")
    correctors = f"[{{n_step: {{steps: {n_step}}}}}]" if by_hddpg else N_STEPS[n_step]
    config = load_config(
        RUNS[name][0],
        [
            f"run.seed={seed}",
            f"resident.envs={envs}",
            "resident.device=cpu",
            "actors.unroll_length=5",
            f"correctors={correctors}",
        ],
    )
    spec = resident_env_of(config).spec(squash=config.env.squash_actions)
    trainer = make_trainer(config, spec, threads=1)
    trainer.publish()
    worker = trainer.make_worker()
    playing = trainer.source
    if isinstance(playing, SourceAround):
        playing = playing.inner
    assert isinstance(playing, ResidentSource)
    began, marked = time.process_time(), 0.0
    while (used := time.process_time() - began) < cpu_s:
        trainer.step(0.0, worker)
        if used - marked >= 1.0:
            marked = used
            ended, returns = playing.envs.last_returns()
            mean = float(returns[ended > 0].mean()) if ended.any() else None
            steps, updates = trainer.account.learned_steps, trainer.counters.updates
            yield [f"{used:.2f}", steps, updates, "" if mean is None else f"{mean:.2f}"]
    trainer.source.close()


def variance(table: Path, names: Sequence[str], seeds: Sequence[int], cpu_s: float | None) -> None:
    """Append the rows of all runs to `table`."""
    new = not table.exists()
    with table.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(FIELDS)
        for seed in seeds:
            for name in names:
                for n_step in N_STEPS:
                    for envs in COUNTS:
                        print(name, envs, n_step, seed, file=sys.stderr, flush=True)
                        rows = learned(name, envs, n_step, seed, cpu_s or RUNS[name][1])
                        for row in rows:
                            writer.writerow([name, envs, n_step, seed, *row])
                        file.flush()


def read(table: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def curves(rows: Sequence[dict[str, str]]) -> dict[tuple[str, int, int], np.ndarray[Any, Any]]:
    """Returns `[seeds, whole CPU seconds]` by environment, n-step and number of environments.

    A second without a row has the return of the one before, the first ones that of the first row.
    """
    found: dict[tuple[str, int, int], dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        if row["return"]:
            key = (row["env"], int(row["n_step"]), int(row["envs"]))
            curve = found.setdefault(key, {}).setdefault(row["seed"], [])
            curve.append((float(row["cpu_s"]), float(row["return"])))
    result = {}
    for key, seeds in found.items():
        ends = [curve[-1][0] for curve in seeds.values()]
        at = np.arange(1, int(min(ends)) + 1)
        lines = []
        for curve in seeds.values():
            times, values = (np.array(column) for column in zip(*curve, strict=True))
            lines.append(values[np.maximum(np.searchsorted(times, at + 0.5) - 1, 0)])
        result[key] = np.array(lines)
    return result


def last_returns(lines: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Mean over seeds, and sample standard deviation, of the returns of the last quarter."""
    last = lines[:, -max(1, round(_LAST_SHARE * lines.shape[1])) :].mean(1)
    return float(last.mean()), float(last.std(ddof=1)) if len(last) > 1 else 0.0


def draw_variance(table: Path, picture: Path) -> None:
    """Draw means over seeds with their standard deviations; print the last ones."""
    from matplotlib.figure import Figure

    found = curves(read(table))
    names = list(dict.fromkeys(key[0] for key in found))
    figure = Figure(figsize=(11.0, 3.8 * len(names)), layout="constrained")
    for row, name in zip(figure.subplots(len(names), 2, squeeze=False), names, strict=True):
        for axes, n_step in zip(row, N_STEPS, strict=True):
            for colour, envs in enumerate(COUNTS):
                if (lines := found.get((name, n_step, envs))) is None:
                    continue
                mean = lines.mean(0)
                spread = lines.std(0, ddof=1) if len(lines) > 1 else np.zeros_like(mean)
                at = np.arange(1, len(mean) + 1)
                axes.plot(at, mean, color=f"C{colour}", label=f"{envs:,} environments")
                axes.fill_between(at, mean - spread, mean + spread, color=f"C{colour}", alpha=0.2)
                final, deviation = last_returns(lines)
                print(f"| {name} | {n_step} | {envs} | {final:.1f} ± {deviation:.1f} |")
            axes.axhline(RUNS[name][2], color="0.35", linestyle="--", linewidth=1.0)
            axes.set_title(f"{name}, returns of {n_step} step{'s' * (n_step > 1)}")
            axes.set_xlabel("CPU seconds")
            axes.grid(visible=True, alpha=0.3)
        row[0].set_ylabel("mean last return ± standard deviation of seeds")
        row[1].legend(frameon=False, loc="center right")
    figure.savefig(picture, dpi=150)


def draw_scaling(table: Path, picture: Path, *, by_cpu: bool) -> None:
    """Draw steps per second, or CPU second, over the number of environments on two log axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.5), layout="constrained")
    axes = figure.subplots()
    rows = [row for row in read(table) if row["what"] == "scaling"]
    rate = "steps_per_cpu_s" if by_cpu else "steps_per_s"
    for name in dict.fromkeys(row["env"] for row in rows):
        points = [(int(row["envs"]), float(row[rate])) for row in rows if row["env"] == name]
        axes.loglog(*zip(*points, strict=True), marker="o", label=name)
    axes.set_xlabel("environments")
    axes.set_ylabel(f"agent steps per {'CPU ' * by_cpu}second")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("variance", help="train; append rows to a table")
    training.add_argument("--csv", type=Path, required=True)
    training.add_argument(
        "--only", nargs="*", choices=tuple(RUNS), default=("CartPole", "Pendulum")
    )
    training.add_argument("--seeds", type=int, nargs="*", default=(1, 2, 3))
    training.add_argument("--cpu-seconds", type=float, default=None)
    for name in ("draw-variance", "draw-scaling"):
        drawing = commands.add_parser(name, help="draw a table")
        drawing.add_argument("table", type=Path)
        drawing.add_argument("picture", type=Path)
        drawing.add_argument("--by-cpu", action="store_true", help="rates by CPU time")
    options = parser.parse_args(arguments)
    if options.command == "variance":
        variance(options.csv, options.only, options.seeds, options.cpu_seconds)
    elif options.command == "draw-variance":
        draw_variance(options.table, options.picture)
    else:
        draw_scaling(options.table, options.picture, by_cpu=options.by_cpu)


if __name__ == "__main__":
    main()
