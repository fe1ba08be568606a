"""GA3C's two figures: the counts that the tuner finds, and the size of the network.

    python benchmarks/ga3c.py curve --out DIR [--minutes 30] [--actors 32] [--every-s 10]
    python benchmarks/ga3c.py sizes [--seconds 60] [--rounds 3] [--actors 32] >> FILE.csv

`curve` trains configs/ga3c/pong.yaml from NA 32, NT 1, NP 1 (GA3C's figure; `--game Breakout` for
another game). Prints a CSV row each `--every-s` seconds: NP, NT, TPS, PPS and the mean return.
`curve.png` and `tuner.png` in DIR show the same. The same `--out` continues an interrupted run.
`--set KEY=VALUE` of either changes the configuration.

`sizes` trains each network with predictors and with actors that compute for themselves, in turns
and for `--seconds` after a warm-up, with NP = NT = 2. Prints a CSV row a run, then the medians in
Markdown on stderr. Predictors batch the observations of all actors; that pays for a large network,
above all on a GPU. The networks are GA3C's own (`accerl-net1`), `accerl-original` and one with 4096
hidden units.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import turns
from whole_run import START_WITHIN_S, start_run

_ROOT = Path(__file__).resolve().parent.parent
_CONFIG = _ROOT / "configs" / "ga3c" / "pong.yaml"
NETWORKS = {
    "small": ("policy.architecture=accerl-net1",),
    "accerl-original": ("policy.architecture=accerl-original",),
    "wider": ("policy.architecture=accerl-original", "policy.hidden=[4096]"),
}
WAYS = {"predictor": "actors.inference=predictor", "local": "actors.inference=local"}
CURVE = ("time_s", "predictors", "trainers", "tps", "pps", "learned_steps", "return_mean_100")
SIZES = ("network", "inference", "actors", "round", "tps", "steps_per_s", "lag_mean")
#: Seconds after the first learned step that are not measured.
_WARM_UP_S = 10.0


def curve(lines: Sequence[dict[str, Any]], every_s: float) -> Iterator[dict[str, Any]]:
    """NP, NT, TPS, PPS and return of the lines, about every `every_s` seconds and at the end."""
    next_s = 0.0
    for line in lines:
        if line["time_s"] < next_s and line is not lines[-1]:
            continue
        next_s = line["time_s"] + every_s
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


def measure(overrides: Sequence[str], seconds: float) -> dict[str, float]:
    """The rates of a run over `seconds` after its warm-up."""
    with start_run(_CONFIG, (*overrides, "tuner.enabled=false")) as run:
        begun = run.wait_for_line(learned=True, within_s=START_WITHIN_S)
        first = run.wait_for_line(at_least_s=begun["time_s"] + _WARM_UP_S)
        last = run.wait_for_line(at_least_s=first["time_s"] + seconds)
    return rates(first, last)


def sweep_sizes(options: argparse.Namespace) -> None:
    """Measure every network both ways and print the rows."""
    writer = csv.DictWriter(sys.stdout, SIZES, lineterminator="\n")
    writer.writeheader()
    rows = []
    for turn in range(1, options.rounds + 1):
        for network in options.networks:
            for way, inference in WAYS.items():
                print(f"{network}, {way}, round {turn}", file=sys.stderr)
                actors = f"actors.processes={options.actors}"
                overrides = (*NETWORKS[network], inference, actors, *options.overrides)
                named = {"network": network, "inference": way, "actors": options.actors}
                rows.append(named | {"round": turn} | measure(overrides, options.seconds))
                writer.writerow(rows[-1])
                sys.stdout.flush()
    print(table(rows), file=sys.stderr)


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
    for command in (one, two):
        command.add_argument("--actors", type=int, default=32, help="NA, one environment each")
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
