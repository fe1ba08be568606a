"""Do the defaults of `--env` solve small environments in the steps that Stable-Baselines3 needs?

    .venv/bin/python benchmarks/sanity.py [--only identity grid] [--seeds 1 2 3] [--more key=value]
    .venv/bin/python benchmarks/sanity.py --table    # the kept figures, no run

Each of the 25 environments of `sanity_envs.py` is trained as `aclearn train --env` trains it, in
lock-step, until the mean return of the last 100 episodes reaches its bar, or for its most steps.
The learned steps, the median of the seeds, are compared with the steps of Stable-Baselines3's PPO
with its defaults, which `sanity_sb3.py` measured once (`data/sanity_sb3.csv`).

Bar: every case that Stable-Baselines3's defaults solve is solved within 1.5 times its steps. Cases
that need memory, exploration or a sparse goal are named as such.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sanity_envs import CASES

_HERE = Path(__file__).parent
_DATA = _HERE / "data"
PEER, OURS = _DATA / "sanity_sb3.csv", _DATA / "sanity.csv"
FIELDS = ("case", "seed", "solved", "most_steps", "solved_steps", "last_mean")
#: Times the peer's steps that count as its equal.
WITHIN = 1.5


def run(name: str, seed: int, folder: Path, more: Iterable[str] = ()) -> dict[str, Any]:
    """Train until the bar or the case's most steps; a row of the table."""
    case = CASES[name]
    keys = {
        "env.kwargs": f"{{name: {name}}}",
        "run.name": f"{name}-{seed}",
        "run.seed": seed,
        "run.dir": folder,
        "run.target_return": case.solved,
        "run.max_env_steps": case.steps,
        "run.deterministic": "true",
        # looks at the mean every few hundred steps; by default every few thousand in lock-step
        "run.metrics_every_s": 0.1,
        "monitor.heartbeat_every_s": 0.1,
    }
    words = [f"{key}={value}" for key, value in keys.items()]
    command = ["train", "--env", "sanity_envs:make", *words, *more]
    done = subprocess.run(
        [sys.executable, "-m", "aclearn", *command],
        cwd=_HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"{name}, seed {seed}: exit status {done.returncode}\n{done.stdout}")
    summary = json.loads((folder / f"{name}-{seed}" / "summary.json").read_text())
    solved = summary["reason"] == "target_reached"
    mean = summary["return_mean_100"]
    return {
        "case": name,
        "seed": seed,
        "solved": case.solved,
        "most_steps": case.steps,
        "solved_steps": summary["learned_steps"] if solved else "",
        "last_mean": "" if mean is None else f"{mean:.4g}",
    }


def medians(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Case → median of the steps of its seeds; infinite where most seeds have not solved it."""
    steps = defaultdict(list)
    for row in rows:
        steps[row["case"]].append(float(row["solved_steps"] or math.inf))
    return {case: statistics.median(found) for case, found in steps.items()}


def verdict(case: str, ours: float, peers: float) -> str:
    """How the steps compare, in words."""
    needs = f"needs {CASES[case].needs}" if CASES[case].needs else ""
    if math.isinf(peers):
        return needs or "no bar"
    told = "ok" if ours <= WITHIN * peers else f"SHORT: {ours / peers:.2f} times"
    return f"{told}; {needs}" if needs else told


def table(ours: Iterable[Mapping[str, Any]], peers: Iterable[Mapping[str, Any]]) -> list[str]:
    """The lines of a Markdown table of the medians."""
    mine, theirs = medians(ours), medians(peers)
    lines = ["| case | tests | here | Stable-Baselines3 | |", "|---|---|---|---|---|"]
    for case in (name for name in CASES if name in mine):
        words = [_thousands(steps.get(case, math.inf), case) for steps in (mine, theirs)]
        told = verdict(case, mine[case], theirs.get(case, math.inf))
        lines.append(f"| {case} | {CASES[case].tests} | {' | '.join(words)} | {told} |")
    return lines


def _thousands(steps: float, case: str) -> str:
    if math.isinf(steps):
        return f"not in {CASES[case].steps // 1000} k"
    return f"{steps / 1000:.0f} k"


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a file of figures."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of all runs, which are written to `options.to` one after another.

    A case that most seeds have not solved gets no further seed, which could not change the median.
    """
    rows: list[dict[str, Any]] = []
    unsolved = dict.fromkeys(options.only, 0)
    with (
        options.to.open("w", encoding="utf-8", newline="") as file,
        tempfile.TemporaryDirectory() as folder,
    ):
        written = csv.DictWriter(file, FIELDS)
        written.writeheader()
        for seed in options.seeds:
            for name in options.only:
                if unsolved[name] > len(options.seeds) // 2:
                    continue
                rows.append(run(name, seed, Path(folder), options.more))
                unsolved[name] += rows[-1]["solved_steps"] == ""
                written.writerow(rows[-1])
                file.flush()
    return rows


def main() -> None:
    """Train what the command line names, or print the kept figures; status 1 if one is short."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--more", nargs="*", default=[], help="key=value for every run")
    parser.add_argument("--to", type=Path, default=OURS, help="file of the figures, a row a run")
    parser.add_argument("--table", action="store_true", help="print the kept figures")
    options = parser.parse_args()
    measured = read(OURS) if options.table else measure(options)
    lines = table(measured, read(PEER))
    print("\n".join(lines))
    sys.exit(any("SHORT" in line for line in lines))


if __name__ == "__main__":
    main()
