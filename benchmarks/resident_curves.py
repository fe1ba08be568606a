"""Learning by number of environments (Sha & Lan 2024, figures 3 and 4), and plots of figure 2.

    python benchmarks/resident_curves.py figure-3a|figure-3b|figure-4 --out DIR [--resume]
        [--seeds 1 2 …] [--envs 10 100 …] [--most-steps N] [--device cuda]
    python benchmarks/resident_curves.py draw FILE PICTURE.png
    python benchmarks/resident_curves.py draw-scaling FILE PICTURE.png [--by-cpu]

A training is a shipped configuration with other `resident.envs`: 3a is CartPole and 3b Acrobot by
A2C as it was published, 4 is Pendulum by HDDPG with returns of 1 and of up to 5 steps. It ends
after as many batches for any number of environments, since a device that steps them all at once
needs the same time for each; `--most-steps` shortens the large ones where there is no such device.

All numbers of environments of a seed come before the next seed, so that the design is balanced
wherever it stops. A training's rows are appended to DIR/figure-3a.csv at its end; `--resume` leaves
out those that have rows. `return` is the mean of the last return of every environment in which an
episode ended; `seconds` are by the clock on a GPU and CPU seconds of the process elsewhere.

`draw` draws the rows over agent steps and over steps of each environment, and prints, by number of
environments and n-step, seeds, thousands of agent steps, steps of each environment, and the mean of
the last quarter. `draw-scaling` draws those of `resident.py scaling training --csv
FILE`.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FIELDS = (
    *("env", "envs", "n_step", "seed", "device"),
    *("batches", "updates", "steps", "seconds", "return"),
)
#: Rows of a training.
_POINTS = 60
#: Share of a training that is compared in a table, from its end.
_LAST_SHARE = 0.25


class Figure(NamedTuple):
    """What its trainings have in common.

    Attributes:
        counts: numbers of environments.
        n_steps: of returns; None: as the configuration has them.
        batches: of a training.
        target: the mean return that counts as learned.
    """

    env: str
    config: str
    counts: tuple[int, ...]
    n_steps: tuple[int | None, ...]
    batches: int
    target: float


FIGURES = {
    "figure-3a": Figure(
        "CartPole", "resident/cartpole_ha2c", (10, 100, 1000, 10_000), (None,), 1500, 475
    ),
    "figure-3b": Figure(
        "Acrobot", "resident/acrobot_ha2c", (10, 100, 1000, 10_000), (None,), 1500, -85
    ),
    "figure-4": Figure(
        "Pendulum", "resident/pendulum_hddpg", (1, 10, 100, 1000, 10_000), (1, 5), 600, -200
    ),
}


def learned(
    figure: Figure,
    envs: int,
    n_step: int | None,
    seed: int,
    *,
    device: str = "cpu",
    most_steps: int | None = None,
) -> Iterator[list[Any]]:
    """Rows of one training, FIELDS from `batches` on."""
    import torch

    from aclearn.config import load_config
    from aclearn.learning.sources.source import SourceAround
    from aclearn.resident import resident_env_of
    from aclearn.resident.source import ResidentSource
    from services.trainer.build import make_trainer

    settings = [f"run.seed={seed}", f"resident.envs={envs}", f"resident.device={device}"]
    if n_step is not None:
        settings.append(f"correctors=[{{n_step: {{steps: {n_step}}}}}]")
    config = load_config(figure.config, settings)
    spec = resident_env_of(config).spec(squash=config.env.squash_actions)
    trainer = make_trainer(config, spec, threads=1)
    trainer.publish()
    worker, playing = trainer.make_worker(), trainer.source
    if isinstance(playing, SourceAround):
        playing = playing.inner
    assert isinstance(playing, ResidentSource)
    on_gpu = trainer.learner.device.type == "cuda"
    seconds: Callable[[], float] = time.perf_counter if on_gpu else time.process_time
    batches = figure.batches
    if most_steps is not None:
        batches = max(1, min(batches, most_steps // (envs * config.actors.unroll_length)))
    every, began = max(1, batches // _POINTS), seconds()
    for batch in range(1, batches + 1):
        trainer.step(0.0, worker)
        if batch % every == 0:
            if on_gpu:
                torch.cuda.synchronize(trainer.learner.device)
            ended, returns = playing.envs.last_returns()
            mean = f"{returns[ended > 0].mean():.2f}" if ended.any() else ""
            updates, steps = trainer.counters.updates, trainer.account.learned_steps
            yield [batch, updates, steps, f"{seconds() - began:.2f}", mean]
    trainer.source.close()
    worker.close()


def train(figure: Figure, table: Path, options: argparse.Namespace) -> None:
    """Append the rows of the trainings that `table` does not have."""
    known = (
        {(row["envs"], row["n_step"], row["seed"]) for row in read(table)} if table.exists() else ()
    )
    if known and not options.resume:
        raise SystemExit(f"{table} has rows; give --resume to add what it lacks, or another --out")
    table.parent.mkdir(parents=True, exist_ok=True)
    with table.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not table.stat().st_size:
            writer.writerow(FIELDS)
        for seed in options.seeds:
            for n_step in figure.n_steps:
                for envs in options.envs or figure.counts:
                    given = (envs, n_step or "", seed)
                    if tuple(map(str, given)) in known:
                        continue
                    print(table.stem, *given, file=sys.stderr, flush=True)
                    rows = learned(
                        figure,
                        envs,
                        n_step,
                        seed,
                        device=options.device,
                        most_steps=options.most_steps,
                    )
                    about = [figure.env, *given, options.device]
                    writer.writerows([*about, *row] for row in list(rows))
                    file.flush()


def read(table: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


class Curve(NamedTuple):
    """The trainings of one number of environments at the same batches.

    Attributes:
        steps: `[K]`, agent steps, means over the seeds.
        returns: `[seeds, K]`, NaN before the first episode's end.
    """

    steps: NDArray[np.float64]
    returns: NDArray[np.float64]

    def last(self) -> tuple[float, float]:
        """Mean over seeds, and sample standard deviation, of the returns of the last quarter."""
        found = self.returns[:, -max(1, round(_LAST_SHARE * len(self.steps))) :]
        last = np.nanmean(found, 1)
        return float(last.mean()), float(last.std(ddof=1)) if len(last) > 1 else float("nan")


def curves(rows: Sequence[dict[str, str]]) -> dict[tuple[str, int], Curve]:
    """By n-step and number of environments: what all its seeds have, batch by batch."""
    found: dict[tuple[str, int], dict[str, dict[int, tuple[float, float]]]] = {}
    for row in rows:
        seeds = found.setdefault((row["n_step"], int(row["envs"])), {})
        point = float(row["steps"]), float(row["return"] or "nan")
        seeds.setdefault(row["seed"], {})[int(row["batches"])] = point
    result = {}
    for key, seeds in found.items():
        common = sorted(set.intersection(*map(set, seeds.values())))
        values = np.array([[points[batch] for batch in common] for points in seeds.values()])
        result[key] = Curve(values[..., 0].mean(0), values[..., 1])
    return result


def draw(table: Path, picture: Path) -> None:
    """Draw means over seeds with their standard deviations; print those of the last quarter."""
    from matplotlib.figure import Figure as Canvas

    rows = read(table)
    found = curves(rows)
    [figure] = [figure for figure in FIGURES.values() if figure.env == rows[0]["env"]]
    n_steps = list(dict.fromkeys(n_step for n_step, _ in found))
    canvas = Canvas(figsize=(11.0, 3.8 * len(n_steps)), layout="constrained")
    for line, n_step in zip(canvas.subplots(len(n_steps), 2, squeeze=False), n_steps, strict=True):
        for envs in sorted(envs for step, envs in found if step == n_step):
            curve = found[n_step, envs]
            seen = np.isfinite(curve.returns).all(0)
            returns = curve.returns[:, seen]
            mean = returns.mean(0)
            spread = returns.std(0, ddof=1) if len(returns) > 1 else np.zeros_like(mean)
            colour = f"C{figure.counts.index(envs)}"
            for axes, steps in zip(
                line, (curve.steps[seen], curve.steps[seen] / envs), strict=True
            ):
                axes.plot(steps, mean, color=colour, label=f"{envs:,}")
                axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.2)
            last, deviation = curve.last()
            ends = f"{curve.steps[-1] / 1000:.0f} | {curve.steps[-1] / envs:.0f}"
            spread_of_seeds = f" ± {deviation:.1f}" if len(returns) > 1 else ""
            print(f"| {envs} | {n_step} | {len(returns)} | {ends} | {last:.1f}{spread_of_seeds} |")
        for axes, over in zip(line, ("agent steps", "steps of each environment"), strict=True):
            axes.axhline(figure.target, color="0.35", linestyle="--", linewidth=1.0)
            axes.set_xscale("log")
            axes.set_xlabel(over)
            axes.grid(visible=True, alpha=0.3)
        line[0].set_title(figure.env + (f", returns of up to {n_step} steps" if n_step else ""))
        line[0].set_ylabel("mean last return ± standard deviation of seeds")
        line[1].legend(frameon=False, title="environments", loc="upper left")
    canvas.savefig(picture, dpi=150)


def draw_scaling(table: Path, picture: Path, *, by_cpu: bool) -> None:
    """Draw steps per second, or CPU second, over the number of environments on two log axes."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(11.0, 4.5), layout="constrained")
    rate = "steps_per_cpu_s" if by_cpu else "steps_per_s"
    titles = {"scaling": "random actions", "training": "rollout and update"}
    for axes, what in zip(canvas.subplots(1, 2, sharey=True), titles, strict=True):
        rows = [row for row in read(table) if row["what"] == what]
        for name in dict.fromkeys(row["env"] for row in rows):
            points = [(int(row["envs"]), float(row[rate])) for row in rows if row["env"] == name]
            axes.loglog(*zip(*points, strict=True), marker="o", label=name)
        axes.set_title(titles[what])
        axes.set_xlabel("environments")
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend(frameon=False)
        axes.set_ylabel(f"agent steps per {'CPU ' * by_cpu}second")
    canvas.savefig(picture, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, or draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in FIGURES:
        training = commands.add_parser(name, help=f"train; rows go to DIR/{name}.csv")
        training.add_argument("--out", type=Path, required=True, metavar="DIR")
        training.add_argument("--resume", action="store_true", help="add what DIR lacks")
        training.add_argument("--seeds", type=int, nargs="+", default=range(1, 9))
        training.add_argument("--envs", type=int, nargs="+", help="default: the figure's")
        training.add_argument("--most-steps", type=int, help="agent steps of a training")
        training.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    for name in ("draw", "draw-scaling"):
        drawing = commands.add_parser(name, help="draw a table")
        drawing.add_argument("table", type=Path)
        drawing.add_argument("picture", type=Path)
    drawing.add_argument("--by-cpu", action="store_true", help="rates by CPU time")
    options = parser.parse_args(arguments)
    if options.command in FIGURES:
        figure = FIGURES[options.command]
        train(figure, options.out / f"{options.command}.csv", options)
    elif options.command == "draw":
        draw(options.table, options.picture)
    else:
        draw_scaling(options.table, options.picture, by_cpu=options.by_cpu)


if __name__ == "__main__":
    main()
