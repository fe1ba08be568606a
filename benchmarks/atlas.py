r"""The atlas: which correction does an actor's compressed policy need, at which lag.

    python benchmarks/atlas.py --out docs/results/data --resume --jobs 2      # the pilot
    python benchmarks/atlas.py --out docs/results/data --resume --full        # what differs there
    python benchmarks/atlas.py --out docs/results/data --report docs/results/atlas.md \
        --picture docs/results/atlas.png

One training for each task, compressor, correction, lag and seed, on one core: all roles in one
process, so that its result depends on the seed and not on the machine's speed. Each appends a row
to OUT/atlas_pilot.csv, with --full to OUT/atlas.csv. With --resume the trainings that have a row,
on whatever machine, are not run again. All cells of a seed come before the next seed.

* The pilot: 3 tasks, 4 compressors, 4 corrections, lags 0 and 64, 3 seeds.
* `--full`: 5 seeds, all corrections, but only where the pilot's corrections differ by more than
  their seeds do.
* lag: each message with weights or an artifact brings those of so many versions before.
* `mean_return`: the mean over all agent steps of the mean return of 100 episodes. `ended` is
  max_env_steps; an error says that the training failed, and its row does not count.
* A training that --limit-s has cut gets no row, and --resume runs it again.

`--report` writes interquartile means over seeds (of fewer than five the mean) with their 95 %
interval between the marks of the page, `--picture` draws them. What was not run is written so.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: one training a core

from atlas_report import Row, differing, picture, report, write_between
from lagged import train_lagged

from aclearn.errors import AclearnError
from aclearn.telemetry.machine import machine

_CONFIGS: Final = Path(__file__).resolve().parent.parent / "configs"
#: Small batches: a lag of 64 versions is then a quarter of a training and not all of it.
SETTING: Final = (
    "actors.wait_for_weights=false",
    "actors.processes=1",
    "actors.envs_per_group=16",
    "actors.unroll_length=16",
    "trainer.unrolls_per_batch=1",
    "trainer.epochs=2",
    "trainer.minibatches=2",
)


@dataclass(frozen=True)
class Task:
    """A shipped configuration in the atlas' setting.

    Attributes:
        env_steps: length of a training.
        floor: mean return of random actions.
        target: mean return that counts as solved.
        settings: keys that differ from `SETTING`.
    """

    config: str
    env_steps: int
    floor: float
    target: float
    settings: tuple[str, ...] = ()


#: With four updates a batch Pendulum learns too slowly; 40 move a policy too far, unless bounded.
_MANY_UPDATES: Final = ("trainer.epochs=10", "trainer.minibatches=4", "loss.target_kl=0.03")
_MINATAR: Final = (
    "env.id=aclearn.envs.minatar:Breakout",
    "env.ignore=[]",
    "policy.architecture=small-cnn",
    "policy.hidden=[128]",
)
TASKS: Final = {
    "acrobot": Task("acrobot.yaml", 50_000, -500.0, -100.0),
    "cartpole": Task("cartpole_ppo.yaml", 60_000, 22.0, 475.0),
    "pendulum": Task("pendulum.yaml", 60_000, -1250.0, -200.0, _MANY_UPDATES),
    "lunarlander": Task("lunarlander.yaml", 200_000, -180.0, 200.0),
    "doorkey": Task("doorkey.yaml", 200_000, 0.0, 0.93),
    "minatar_breakout": Task("doorkey.yaml", 100_000, 0.5, 10.0, _MINATAR),
}
COMPRESSORS: Final = {
    "none": "[]",
    "fp16": "[fp16, onnx]",
    "int8": "[int8, onnx]",
    "prune50": "[prune: 0.5, onnx]",
    "prune75_int8": "[prune: 0.75, int8, onnx]",
    "distil": "[prune: 0.5, distill, onnx]",
    "low_rank": "[low_rank, onnx]",
}
_VTRACE: Final = "vtrace: {lambda: 0.95}"
CORRECTIONS: Final = {
    "none": "[no_correction: {lambda: 0.95}]",
    "epsilon": "[no_correction: {lambda: 0.95}, epsilon_correction: {epsilon: 0.01}]",
    "1-step": "[no_correction: {lambda: 0.95}, importance_sampling]",
    "vtrace": f"[{_VTRACE}, importance_sampling]",
    "ratio_mask": f"[{_VTRACE}, importance_sampling: {{rho_bar: null}}, ratio_mask]",
    "tv_mask": f"[{_VTRACE}, importance_sampling, tv_mask]",
    "unroll_mask": f"[{_VTRACE}, importance_sampling, unroll_mask: {{low: 0.9, high: 1.1}}]",
    "scale_by_ess": f"[{_VTRACE}, importance_sampling, scale_by_ess]",
    "second_moment": f"[{_VTRACE}, importance_sampling, second_moment]",
    "adaptive": f"[{_VTRACE}, adaptive]",
    "auto": "auto",
}
LAGS: Final = (0, 8, 64)
PILOT: Final = {
    "tasks": ("acrobot", "cartpole", "pendulum"),
    "compressors": ("none", "int8", "prune50", "prune75_int8"),
    "corrections": ("none", "vtrace", "ratio_mask", "auto"),
}
_PILOT_LAGS: Final = (0, 64)
_PILOT_SEEDS, _FULL_SEEDS = range(1, 4), range(1, 6)
_CELL: Final = ("task", "compressor", "correction", "lag", "seed")
#: Columns whose metric has another name.
_METRICS: Final = {"kl_mean": "compressor_kl_mean"}
FIELDS: Final = (
    *_CELL,
    *("machine", "commit", "ended", "env_steps"),
    *("lag_mean", "kl_mean", "compressed_share", "mean_return", "last_return"),
    "settings",
)


@dataclass(frozen=True)
class Trial:
    """One training of the atlas."""

    task: str
    compressor: str
    correction: str
    lag: int
    seed: int

    def __str__(self) -> str:
        return f"{self.seed}-{self.task}-{self.compressor}-{self.lag}-{self.correction}"

    def overrides(self) -> list[str]:
        """The keys that differ from the task's configuration."""
        return [
            *SETTING,
            *TASKS[self.task].settings,
            f"run.seed={self.seed}",
            f"run.max_env_steps={TASKS[self.task].env_steps}",
            f"correctors={CORRECTIONS[self.correction]}",
            f"compressor.chain={COMPRESSORS[self.compressor]}",
        ]


def pilot() -> list[Trial]:
    """The trainings of the pilot, all cells of a seed before the next seed."""
    cells = itertools.product(_PILOT_SEEDS, PILOT["tasks"], PILOT["compressors"], _PILOT_LAGS)
    return [
        Trial(task, compressor, correction, lag, seed)
        for seed, task, compressor, lag in cells
        for correction in PILOT["corrections"]
    ]


def full(rows: Sequence[Row]) -> list[Trial]:
    """The trainings of the places where the pilot's corrections differ by more than seeds do."""
    return [
        Trial(*place[:2], correction, place[2], seed)
        for seed in _FULL_SEEDS
        for place in differing(rows)
        for correction in CORRECTIONS
    ]


def run(trial: Trial, limit_s: float) -> dict[str, Any] | None:
    """Train, and give the row of the table; None where the training was cut after `limit_s`."""
    task, overrides = TASKS[trial.task], trial.overrides()
    row: dict[str, Any] = vars(trial) | {"machine": machine(), "commit": _commit()}
    row["settings"] = " ".join([task.config, *overrides])
    try:
        trained = train_lagged(
            _CONFIGS / task.config, [*overrides, f"run.max_wall_s={limit_s}"], trial.lag
        )
    except AclearnError as error:
        return row | {"ended": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
    if trained.ended == "max_wall_s":
        return None
    if not trained.lines:
        return row | {"ended": "no mean return"}
    means = ("lag_mean", "kl_mean", "compressed_share")
    return row | {
        "ended": trained.ended,
        "env_steps": trained.env_steps,
        **{name: _short(trained.mean_of(_METRICS.get(name, name))) for name in means},
        "mean_return": _short(trained.mean_return),
        "last_return": _short(trained.lines[-1]["return_mean_100"]),
    }


def _short(number: float | None) -> str:
    return "" if number is None else f"{number:.5g}"


def _commit() -> str:
    """The commit of the code, with a plus if files differ from it."""
    command = ["git", "-C", str(_CONFIGS.parent), "describe", "--always", "--dirty=+"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def rows_of(path: Path) -> list[Row]:
    """The rows of a file; none if there is none."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [Row.of(row) for row in csv.DictReader(file)]


def train(trials: Sequence[Trial], path: Path, *, jobs: int, limit_s: float) -> None:
    """Train what has no row in the file yet, and append a row as soon as each is over."""
    done = {row.cell for row in rows_of(path)}
    left = [trial for trial in trials if tuple(vars(trial).values()) not in done]
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file, ProcessPoolExecutor(jobs) as pool:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        for number, (trial, row) in enumerate(_rows(pool, left, limit_s), 1):
            if row is not None:
                writer.writerow(row)
                file.flush()
                os.fsync(file.fileno())
            ended = row["ended"] if row else f"cut after {limit_s:g} s, no row"
            print(f"{number} of {len(left)}: {trial}: {ended}", file=sys.stderr)


def _rows(
    pool: ProcessPoolExecutor, trials: Sequence[Trial], limit_s: float
) -> Iterator[tuple[Trial, dict[str, Any] | None]]:
    waiting = {pool.submit(run, trial, limit_s): trial for trial in trials}
    try:
        for future in as_completed(waiting):
            yield waiting[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the rows")
    parser.add_argument("--resume", action="store_true", help="go on with the rows that are there")
    parser.add_argument("--full", action="store_true", help="5 seeds where the pilot differs")
    parser.add_argument("--only", default="", help="part of SEED-TASK-COMPRESSOR-LAG-CORRECTION")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time, one a core")
    parser.add_argument("--limit-s", type=float, default=1800.0, help="seconds of one training")
    parser.add_argument("--report", type=Path, help="train nothing: write tables into this page")
    parser.add_argument("--picture", type=Path, help="train nothing: draw this picture")
    options = parser.parse_args(arguments)
    path = options.out / ("atlas.csv" if options.full else "atlas_pilot.csv")
    if options.report or options.picture:
        whole = {"tasks": (*TASKS,), "compressors": (*COMPRESSORS,), "corrections": (*CORRECTIONS,)}
        shown, compressors, corrections = (whole if options.full else PILOT).values()
        lags = LAGS if options.full else _PILOT_LAGS
        rows, tasks = rows_of(path), {name: TASKS[name] for name in shown}
        if options.report:
            tables = report(rows, tasks, compressors, corrections, lags)
            write_between(options.report, f"data/{path.name}", tables)
        if options.picture:
            picture(rows, tasks, compressors, corrections, lags, out=options.picture)
        return
    if path.exists() and not options.resume:
        parser.error(f"{path} exists; --resume goes on with it")
    trials = full(rows_of(options.out / "atlas_pilot.csv")) if options.full else pilot()
    trials = [trial for trial in trials if options.only in str(trial)]
    train(trials, path, jobs=options.jobs, limit_s=options.limit_s)


if __name__ == "__main__":
    main()
