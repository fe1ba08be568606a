"""The tuner beside a sweep of all counts and GA3C's rule, on real processes.

    python benchmarks/tuner.py [--workload trainers] [--most 4] [--minutes 5] --out DIR

Every part is one `aclearn train` of a workload (`tuner_workloads.py`) with a rule for the counts:

* `sweep`: each pair (NP, NT) for `--sweeps` windows, in random order.
* `tuner`: aclearn's, from (1, 1) and from the largest counts.
* `ga3c`: that of GA3C's released code (`tuner_rules.py`), with windows as long as the others'.

Prints one JSON line for the sweep's rates, and one for each rule and start. Of a rule:

* `share_at_half`, `share_at_end`: the kept pair's rate over the best pair's, by the sweep.
* `of_the_best_rate`: learned steps/s after the first `--minutes`, over the best pair's.
* `lost_to_exploring`: the share of the kept pairs' rate that other pairs cost in that time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tuner_rules import RULES
from tuner_workloads import COMMON, WORKLOADS

_HERE = Path(__file__).resolve()


def run(
    arguments: argparse.Namespace, rule: str, start: tuple[int, int], seconds: float, name: str
) -> Path:
    """One training under a rule; its run folder."""
    config: dict[str, dict[str, Any]] = {key: dict(value) for key, value in COMMON.items()}
    for group, values in WORKLOADS[arguments.workload].items():
        config.setdefault(group, {}).update(values)
    config.setdefault("predictor", {})["workers"] = start[0]
    config["trainer"]["workers"] = start[1]
    config["run"] = {"name": name, "dir": str(arguments.out), "max_wall_s": seconds + 15}
    config["tuner"] = {
        "enabled": True,
        "every_s": arguments.window,
        "settle_s": arguments.settle,
        "max_predictors": arguments.most,
        "max_trainers": arguments.most,
        # GA3C's rule counts batches, the others learned steps
        "objective": "tps" if rule == "ga3c" else "learned_steps",
        "remember": False,
    }
    file = arguments.out / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    print(f"{name}: {seconds:.0f} s", file=sys.stderr)
    subprocess.run(
        [
            sys.executable,
            str(_HERE),
            "--train",
            str(file),
            "--rule",
            rule,
            "--workload",
            arguments.workload,
        ],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=(arguments.out / f"{name}.log").open("w"),
        stderr=subprocess.STDOUT,
        timeout=seconds + 120,
    )
    return Path(arguments.out / name)


def train(file: Path, rule: str, workload: str) -> None:
    """`aclearn train`; another rule takes the tuner's place in its monitor."""
    import services.launcher.role_commands

    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(_HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    sys.path.insert(0, str(_HERE.parent))
    make = services.launcher.role_commands.role_command

    def with_rule(*arguments: Any, **options: Any) -> Any:
        command = make(*arguments, **options)
        if command.role == "monitor" and rule in RULES:
            program = ("-c", f"import tuner; tuner.monitor({rule!r})")
        elif command.role == "predictor" and workload == "accelerator":
            program = ("-c", "import tuner_workloads; tuner_workloads.predictor()")
        else:
            return command
        at = command.argv.index("services.cli")
        argv = (*command.argv[: at - 1], *program, *command.argv[at + 1 :])
        return dataclasses.replace(command, argv=argv)

    services.launcher.role_commands.role_command = with_rule
    from services.cli import main as cli

    sys.argv = ["aclearn", "train", str(file)]
    cli()


def monitor(rule: str) -> None:
    """The monitor's process with another rule in place of the tuner."""
    from aclearn.control.tuner import plugin
    from services.cli import main as cli

    plugin.Tuner = RULES[rule]  # type: ignore[attr-defined, assignment]
    cli()


def decisions(folder: Path) -> list[dict[str, Any]]:
    """The lines of `tuner.jsonl`."""
    return [json.loads(line) for line in (folder / "tuner.jsonl").read_text().splitlines()]


def pair(counts: Mapping[str, int]) -> tuple[int, int]:
    """(NP, NT)."""
    return counts["predictors"], counts["trainers"]


def sweep_rates(folder: Path) -> dict[tuple[int, int], list[float]]:
    """Rates by pair."""
    rates: dict[tuple[int, int], list[float]] = {}
    for line in decisions(folder):
        rates.setdefault(pair(line["counts"]), []).append(line["rate"])
    return rates


def lost_to_exploring(lines: Sequence[Mapping[str, Any]], since_s: float) -> float | None:
    """Share of the kept counts' rate that windows with other counts cost after `since_s`.

    None without a window of kept counts.
    """
    read = [line for line in lines if line["rate"] is not None and line["time_s"] > since_s]
    seconds = sum(line["window_s"] for line in read)
    learned = sum(line["rate"] * line["window_s"] for line in read)
    at_home = [line["rate"] for line in read if line["counts"] == line["kept"]]
    return 1 - learned / seconds / statistics.fmean(at_home) if at_home else None


def learned_per_s(folder: Path, since_s: float) -> float:
    """Learned steps per second from `since_s` to the end."""
    from aclearn.runs import read_metrics

    lines = [line for line in read_metrics(folder / "metrics.jsonl") if line["time_s"] >= since_s]
    first, last = lines[0], lines[-1]
    return float(
        (last["learned_steps"] - first["learned_steps"]) / (last["time_s"] - first["time_s"])
    )


def main() -> None:
    """Sweep, then the rules."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="trainers")
    parser.add_argument("--most", type=int, default=4, help="largest NP and NT")
    parser.add_argument("--window", type=float, default=6.0, help="seconds")
    parser.add_argument("--settle", type=float, default=1.0, help="seconds")
    parser.add_argument("--sweeps", type=int, default=2, help="windows of each pair")
    parser.add_argument("--minutes", type=float, default=5.0, help="half of a rule's run")
    parser.add_argument("--rules", nargs="+", default=["tuner", "ga3c"], choices=["tuner", "ga3c"])
    parser.add_argument("--out", type=Path, help="folder of the runs")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rule", default="tuner", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train is not None:
        train(arguments.train, arguments.rule, arguments.workload)
        return
    if arguments.out is None:
        parser.error("--out: expected a folder for the runs, got nothing")
    arguments.out.mkdir(parents=True, exist_ok=True)
    most = arguments.most
    window_s = arguments.window + arguments.settle + 1.0
    folder = run(arguments, "sweep", (1, 1), most**2 * arguments.sweeps * window_s, "sweep")
    rates = {p: statistics.median(r) for p, r in sweep_rates(folder).items()}
    best = max(rates, key=lambda p: rates[p])
    shares = {p: round(rate / rates[best], 3) for p, rate in rates.items()}
    line: dict[str, Any] = {
        "workload": arguments.workload,
        "best": best,
        "best_rate": round(rates[best], 1),
        "share_of_best": {f"{p[0]},{p[1]}": shares[p] for p in sorted(shares)},
    }
    print(json.dumps(line), flush=True)
    find_s = 60 * arguments.minutes
    for rule in arguments.rules:
        for start in ((1, 1), (most, most)):
            name = f"{rule}-from-{start[0]}-{start[1]}"
            folder = run(arguments, rule, start, 2 * find_s, name)
            lines = decisions(folder)
            path = [(round(d["time_s"]), *pair(d["kept"])) for d in lines]
            moves = [p for i, p in enumerate(path) if i == 0 or p[1:] != path[i - 1][1:]]
            at_half = [p for p in path if p[0] <= find_s][-1][1:]
            lost = lost_to_exploring(lines, find_s)
            line = {
                "rule": rule,
                "from": start,
                "kept_at_half": at_half,
                "share_at_half": shares[at_half],
                "kept_at_end": path[-1][1:],
                "share_at_end": shares[path[-1][1:]],
                "rate_afterwards": round(learned_per_s(folder, find_s), 1),
                "of_the_best_rate": round(learned_per_s(folder, find_s) / rates[best], 3),
                "lost_to_exploring": None if lost is None else round(lost, 3),
                "path": moves,
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
