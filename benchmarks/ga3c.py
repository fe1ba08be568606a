"""GA3C's figures: the tuner's counts, the size of the network, learning, and rates beside A3C.

    python benchmarks/ga3c.py curve --out DIR [--minutes 30] [--actors 32] [--every-s 10]
    python benchmarks/ga3c.py sizes [--seconds 60] [--rounds 3] [--actors 32] >> FILE.csv
    python benchmarks/ga3c.py learning --out DIR [--steps 1000000] > FILE.csv
    python benchmarks/ga3c.py rates [--seconds 15] [--rounds 2] [--tuned-s 90] >> FILE.csv

`curve` trains configs/ga3c/paper.yaml from NA 32, NT 1, NP 1 (GA3C's figure; `--game Breakout` for
another game). Prints a CSV row each `--every-s` seconds: NP, NT, TPS, PPS and the mean return.
`curve.png` and `tuner.png` in DIR show the same. The same `--out` continues an interrupted run.
`--set KEY=VALUE` of either changes the configuration.

`sizes` trains each network with predictors and with actors that compute for themselves, in turns
and for `--seconds` after a warm-up, with NP = NT = 2. Prints a CSV row a run, then the medians in
Markdown on stderr. Predictors batch the observations of all actors; that pays for a large network,
above all on a GPU. The networks are GA3C's own (`accerl-net1`), `accerl-original` and one with 4096
hidden units.

`learning` trains configs/ga3c/breakout.yaml to so many agent steps, one arm after the other:
through predictors with the tuner on, and with actors that compute for themselves. Counts begin with
GA3C's rule of thumb. Prints a CSV row each `--every` steps. The same `--out` continues.

`rates` measures, in turns, both arms with the counts of the rule of thumb, and A3C on the same game
with as many actors as cores (a3c.py); then the tuner over NA, NP and NT, which has `--tuned-s`
seconds, the last `--seconds` measured. Prints a CSV row each; an update of A3C has up to 5 steps.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import a3c
import turns
from whole_run import START_WITHIN_S, start_run

from aclearn.config import TUNED_COUNTS, Config, load_config
from aclearn.telemetry.cores import usable_cores

_ROOT = Path(__file__).resolve().parent.parent
_CONFIG = _ROOT / "configs" / "ga3c" / "paper.yaml"
_LEARNS = _ROOT / "configs" / "ga3c" / "breakout.yaml"
NETWORKS = {
    "small": ("policy.architecture=accerl-net1",),
    "accerl-original": ("policy.architecture=accerl-original",),
    "wider": ("policy.architecture=accerl-original", "policy.hidden=[4096]"),
}
WAYS = {"predictor": "actors.inference=predictor", "local": "actors.inference=local"}
CURVE = ("time_s", "predictors", "trainers", "tps", "pps", "learned_steps", "return_mean_100")
SIZES = ("network", "inference", "actors", "round", "tps", "steps_per_s", "lag_mean")
#: Arm of a training → its overrides. The counts are those of GA3C's rule of thumb.
ARMS = {
    "predictor": ("tuner.remember=false",),
    "local": ("actors.inference=local", "tuner.enabled=false"),
}
COUNTS = ("actors", "predictors", "trainers")
LEARNING = ("arm", "seed", "env_steps", "return_mean_100", "lag_mean", *COUNTS)
#: Seconds of A3C's start and first steps, which are not measured.
_A3C_STARTS_S = 15.0
RATES = ("arm", "round", *COUNTS, "tps", "steps_per_s", "lag_mean")
#: The tuner over all three counts, in short windows.
_TUNED = (
    *("tuner.counts=[actors,predictors,trainers]", "tuner.every_s=4", "tuner.settle_s=1"),
    "tuner.max_actors=8",
)
Line = dict[str, Any]
#: Seconds after the first learned step that are not measured.
_WARM_UP_S = 10.0
#: No training of steps takes longer, in seconds.
_LONGEST_S = 86_400.0


def thinned(lines: Sequence[Line], key: str, every: float) -> Iterator[Line]:
    """The lines about every `every` of a figure that grows, and the last one."""
    due = 0.0
    for line in lines:
        if line[key] >= due or line is lines[-1]:
            due = line[key] + every
            yield line


def curve(lines: Sequence[Line], every_s: float) -> Iterator[Line]:
    """NP, NT, TPS, PPS and return of the lines, about every `every_s` seconds and at the end."""
    for line in thinned(lines, "time_s", every_s):
        yield {
            "time_s": round(line["time_s"], 1),
            "predictors": line.get("tuner_predictors"),
            "trainers": line.get("tuner_trainers"),
            "tps": round(line["tps"], 1),
            "pps": round(line["pps"], 1),
            "learned_steps": line["learned_steps"],
            "return_mean_100": line["return_mean_100"],
        }


def train_curve(options: argparse.Namespace) -> None:
    """Train the curve's run to its time and print it."""
    folder = options.out.resolve() / "curve"
    folder.parent.mkdir(parents=True, exist_ok=True)
    until_s = 60.0 * options.minutes
    if turns.seconds(folder) < until_s:
        start = ("predictor.workers=1", "trainer.workers=1", "tuner.remember=false")
        game = f"env.id=ALE/{options.game}-v5", f"actors.processes={options.actors}"
        overrides = (*game, *start, "run.target_return=null", *options.overrides)
        turns.train(_CONFIG, overrides, folder, until_s)
    writer = csv.DictWriter(sys.stdout, CURVE, lineterminator="\n")
    writer.writeheader()
    writer.writerows(curve(turns.lines_of(folder), options.every_s))
    plot = [sys.executable, "-m", "services.cli", "plot", str(folder)]
    for name, more in {"curve.png": [], "tuner.png": ["--tuner"]}.items():
        picture = ["--out", str(folder.parent / name)]
        subprocess.run([*plot, *more, *picture], check=True, cwd=_ROOT, stdout=sys.stderr)


def rates(first: dict[str, Any], last: dict[str, Any]) -> dict[str, float]:
    """TPS and learned steps per second between two lines; a batch publishes one version."""
    took_s = last["time_s"] - first["time_s"]
    return {
        "tps": round((last["policy_version"] - first["policy_version"]) / took_s, 1),
        "steps_per_s": round((last["learned_steps"] - first["learned_steps"]) / took_s, 1),
        "lag_mean": round(last["lag_mean"], 1),
    }


def measure(
    config: Path, overrides: Sequence[str], seconds: float, warm_up_s: float = _WARM_UP_S
) -> tuple[Line, Line]:
    """Lines of a run that lie `seconds` apart, the first after its warm-up."""
    with start_run(config, overrides) as run:
        begun = run.wait_for_line(learned=True, within_s=START_WITHIN_S)
        first = run.wait_for_line(at_least_s=begun["time_s"] + warm_up_s)
        return first, run.wait_for_line(at_least_s=first["time_s"] + seconds)


def sweep_sizes(options: argparse.Namespace) -> None:
    """Measure every network both ways and print the rows."""
    writer = csv.DictWriter(sys.stdout, SIZES, lineterminator="\n")
    writer.writeheader()
    rows = []
    for turn in range(1, options.rounds + 1):
        for network in options.networks:
            for way, inference in WAYS.items():
                print(f"{network}, {way}, round {turn}", file=sys.stderr)
                actors = f"actors.processes={options.actors}", "tuner.enabled=false"
                overrides = (*NETWORKS[network], inference, *actors, *options.overrides)
                named = {"network": network, "inference": way, "actors": options.actors}
                found = rates(*measure(_CONFIG, overrides, options.seconds))
                rows.append(named | {"round": turn} | found)
                writer.writerow(rows[-1])
                sys.stdout.flush()
    print(table(rows), file=sys.stderr)


def train_arms(options: argparse.Namespace) -> None:
    """Train each arm to its steps and print its rows."""
    writer = csv.DictWriter(sys.stdout, LEARNING, lineterminator="\n")
    writer.writeheader()
    for seed, arm in product(options.seeds, options.arms):
        folder = options.out.resolve() / f"{arm}-{seed}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        lines = turns.lines_of(folder)
        if not lines or lines[-1]["env_steps"] < options.steps:
            bounds = f"run.max_env_steps={options.steps}", "run.target_return=null"
            overrides = (*ARMS[arm], *bounds, f"run.seed={seed}", *options.overrides)
            turns.train(_LEARNS, overrides, folder, _LONGEST_S)
        config = load_config(folder / "config.yaml")
        for line in thinned(turns.lines_of(folder), "env_steps", options.every):
            figures = {key: line[key] for key in ("env_steps", "return_mean_100")}
            figures |= {"arm": arm, "seed": seed, "lag_mean": round(line["lag_mean"], 2)}
            writer.writerow(figures | counts_of(line, config))


def counts_of(line: Line, config: Config) -> dict[str, int]:
    """NA, NP and NT: the tuner's, else those of the configuration."""
    found = {
        name: getattr(getattr(config, group), key) for name, (group, key) in TUNED_COUNTS.items()
    }
    if config.actors.inference == "local":
        found["predictors"] = 0
    return {name: int(line.get(f"tuner_{name}", count)) for name, count in found.items()}


def sweep_rates(options: argparse.Namespace) -> None:
    """Measure each arm and A3C in turns, then the tuner, and print the rows."""
    writer = csv.DictWriter(sys.stdout, RATES, lineterminator="\n")
    writer.writeheader()

    def write(arm: str, turn: int, found: dict[str, Any]) -> None:
        writer.writerow({"arm": arm, "round": turn} | found)
        sys.stdout.flush()

    for turn in range(1, options.rounds + 1):
        for arm, overrides in ARMS.items():
            counts = (*overrides, "tuner.enabled=false", *options.overrides)
            write(arm, turn, measured(counts, options.seconds))
        write("a3c", turn, a3c_rates(options.overrides, options.seconds))
    if options.tuned_s:
        tuned = (*ARMS["predictor"], *_TUNED, *options.overrides)
        write("tuner", 1, measured(tuned, options.seconds, options.tuned_s - options.seconds))


def measured(overrides: Sequence[str], seconds: float, warm_up_s: float = 5.0) -> dict[str, Any]:
    """Counts and rates of the configuration that learns."""
    lines = measure(_LEARNS, overrides, seconds, warm_up_s)
    return counts_of(lines[1], load_config(_LEARNS, overrides)) | rates(*lines)


def a3c_rates(overrides: Sequence[str], seconds: float) -> dict[str, Any]:
    """TPS and steps per second of A3C with an actor for each core."""
    with tempfile.TemporaryDirectory(prefix="aclearn-benchmark-") as folder:
        env = load_config(_LEARNS, overrides).env
        game = f"env.id={env.id}", f"env.life_loss_ends={str(env.life_loss_ends).lower()}"
        config, until_s = load_config(_CONFIG, game), _A3C_STARTS_S + seconds
        ends = {"steps": math.inf, "seconds": until_s, "every_s": 1.0}
        a3c.train(config, Path(folder), actors=usable_cores(), **ends)
        rows = list(csv.DictReader((Path(folder) / "a3c.csv").read_text().splitlines()))
    first = next(row for row in rows if float(row["time_s"]) >= until_s - seconds)
    took_s = float(rows[-1]["time_s"]) - float(first["time_s"])
    tps, steps = (
        (int(rows[-1][key]) - int(first[key])) / took_s for key in ("updates", "env_steps")
    )
    counts = {"actors": usable_cores(), "predictors": 0, "trainers": 0}
    return counts | {"tps": round(tps, 1), "steps_per_s": round(steps, 1), "lag_mean": 0.0}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Median TPS of each network both ways, and their ratio, as Markdown."""
    text = ["| network | TPS with predictors | TPS of local actors | ratio |", "|---|---|---|---|"]
    for network in dict.fromkeys(row["network"] for row in rows):
        predictor, local = (
            statistics.median(
                row["tps"] for row in rows if (row["network"], row["inference"]) == (network, way)
            )
            for way in WAYS
        )
        text.append(f"| {network} | {predictor:.1f} | {local:.1f} | {predictor / local:.2f} |")
    return "\n".join(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("curve", help="NP, NT, TPS and return over time")
    one.set_defaults(run=train_curve)
    one.add_argument("--out", type=Path, required=True, help="folder of the run")
    one.add_argument("--minutes", type=float, default=30.0, help="training time")
    one.add_argument("--every-s", type=float, default=10.0, help="seconds between two rows")
    one.add_argument("--game", default="Pong", help="name in ALE/…-v5")
    two = commands.add_parser("sizes", help="TPS by network and place of inference")
    two.set_defaults(run=sweep_sizes)
    two.add_argument("--seconds", type=float, default=60.0, help="measured time of a run")
    two.add_argument("--rounds", type=int, default=3)
    two.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    three = commands.add_parser("learning", help="return over steps, with predictors and without")
    three.set_defaults(run=train_arms)
    three.add_argument("--out", type=Path, required=True, help="folder of the runs")
    three.add_argument("--steps", type=int, default=1_000_000, help="agent steps of each")
    three.add_argument("--every", type=int, default=20_000, help="agent steps between two rows")
    three.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    three.add_argument("--seeds", nargs="+", type=int, default=[1])
    four = commands.add_parser("rates", help="TPS with predictors, without, and of A3C")
    four.set_defaults(run=sweep_rates)
    four.add_argument("--seconds", type=float, default=15.0, help="measured time of a run")
    four.add_argument("--rounds", type=int, default=2)
    four.add_argument("--tuned-s", type=float, default=90.0, help="time of the tuner; 0: none")
    for command in (one, two):
        command.add_argument("--actors", type=int, default=32, help="NA, one environment each")
    for command in (one, two, three, four):
        command.add_argument(
            "--set",
            action="append",
            default=[],
            dest="overrides",
            metavar="KEY=VALUE",
            help="of the configuration, e.g. trainer.unrolls_per_batch=8",
        )
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main()
