"""Training time that INT8 actors save on the 12 games of AcceRL's Table 4.

    python benchmarks/table4.py --out DIR [--games Pong Alien] [--actors 12] [--turn-s 60]
        [--turns 4]

Each game is trained twice with configs/accerl: actors on the policy in eager torch (fp32), and on
its INT8 copy. The runs take turns of `--turn-s` seconds; the same `--out` continues an interrupted
table. Table 5 has 12 actors of one environment each (NA 12) and batches of 160 steps; on two cores
`--actors 2` keeps both but the number of actors.

One CSV row a game:

* `…_actor_ms`: an actor's time for an agent step by the clock, emulator included, without waits for
  the queue or for weights; what other processes take of its core is in it.
* `…_steps_per_s`: agent steps of all actors.
* `saved`: share of the fp32 run's time to the same number of learned steps that INT8 saves; the
  starts of the processes are left out. The paper has 29.8 % to 40.3 %.
* `steps`: that number; `…_return` the mean return of 100 episodes there.

Then the table in Markdown, on stderr.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import turns

_CONFIGS = Path(__file__).resolve().parent.parent / "configs" / "accerl"
GAMES = (
    *("Alien", "Amidar", "BeamRider", "NameThisGame", "Riverraid", "Hero"),
    *("SpaceInvaders", "Breakout", "RoadRunner", "BankHeist", "Pong", "Seaquest"),
)
#: Variant → configuration and overrides.
VARIANTS = {
    "fp32": (_CONFIGS / "original.yaml", ("actors.runtime=torch",)),
    "int8": (_CONFIGS / "int8.yaml", ()),
}
PAPER = "29.8–40.3 %"
FIELDS = (
    *("game", "actors", "fp32_actor_ms", "int8_actor_ms", "fp32_steps_per_s", "int8_steps_per_s"),
    *("saved", "steps", "fp32_return", "int8_return"),
)
#: Parts of an actor's step; its other parts are waits.
_PARTS = ("inference", "swap", "emulator", "encode", "wire")

Turns = list[list[dict[str, Any]]]


def progress(run: Turns) -> list[tuple[float, int, float | None]]:
    """Seconds, steps learned in them and mean return, line by line; without the turns' starts."""
    points: list[tuple[float, int, float | None]] = []
    before_s, before = 0.0, 0
    for turn in run:
        first = turn[0]
        for line in turn:
            took_s, learned = (line[key] - first[key] for key in ("time_s", "learned_steps"))
            points.append((before_s + took_s, before + learned, line["return_mean_100"]))
        before_s, before, _ = points[-1]
    return points


def time_to(points: Sequence[tuple[float, int, float | None]], steps: int) -> float:
    """Seconds until so many steps were learned, between two lines by interpolation."""
    (begun_s, learned, _), *later = points
    for now_s, now, _ in later:
        if now >= steps:
            share = (steps - learned) / (now - learned) if now > learned else 0.0
            return begun_s + share * (now_s - begun_s)
        begun_s, learned = now_s, now
    raise ValueError(f"steps: expected at most {learned}, got {steps}")


def actor_figures(run: Turns) -> dict[str, float]:
    """Milliseconds of an actor for a step, and steps of all actors per second."""
    worked_s = wall_s = 0.0
    steps = 0
    for turn in run:
        first, last = turn[0], turn[-1]
        spent = [line.get("part_seconds", {}).get("actor", {}) for line in (first, last)]
        worked_s += sum(spent[1].get(part, 0.0) - spent[0].get(part, 0.0) for part in _PARTS)
        wall_s += last["time_s"] - first["time_s"]
        steps += last["env_steps"] - first["env_steps"]
    return {"actor_ms": 1000 * worked_s / steps, "steps_per_s": steps / wall_s}


def row(game: str, actors: int, runs: dict[str, Turns]) -> dict[str, Any]:
    """The row of a game, from the turns of its runs."""
    points = {name: progress(run) for name, run in runs.items()}
    for name, found in points.items():
        if not found or not found[-1][1]:
            raise SystemExit(f"{game}, {name}: no learned steps; set --turn-s to more seconds")
    steps = min(found[-1][1] for found in points.values())
    took = {name: time_to(found, steps) for name, found in points.items()}
    made: dict[str, Any] = {"game": game, "actors": actors, "steps": steps}
    made["saved"] = round(1 - took["int8"] / took["fp32"], 3)
    for name, run in runs.items():
        figures = actor_figures(run)
        made[f"{name}_actor_ms"] = round(figures["actor_ms"], 3)
        made[f"{name}_steps_per_s"] = round(figures["steps_per_s"], 1)
        before = [mean for _, learned, mean in points[name] if learned <= steps]
        made[f"{name}_return"] = before[-1]
    return made


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown, with the median share beside the paper's."""
    text = [
        "| game | actor, ms a step: fp32, INT8 | agent steps/s: fp32, INT8 | time saved |",
        "|---|---|---|---|",
    ]
    for found in rows:
        text.append(
            f"| {found['game']} | {found['fp32_actor_ms']:.2f}, {found['int8_actor_ms']:.2f} | "
            f"{found['fp32_steps_per_s']:.0f}, {found['int8_steps_per_s']:.0f} | "
            f"{found['saved']:.1%} |"
        )
    median = statistics.median(found["saved"] for found in rows)
    text.append(f"| median | | | {median:.1%}; paper {PAPER} |")
    return "\n".join(text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--games", nargs="+", choices=GAMES, default=GAMES, metavar="GAME")
    parser.add_argument("--actors", type=int, default=12, help="NA, one environment each")
    parser.add_argument("--turn-s", type=float, default=60.0, help="length of a turn, in seconds")
    parser.add_argument("--turns", type=int, default=4, help="turns of each run")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    common = (
        f"actors.processes={options.actors}",
        f"run.seed={options.seed}",
        "run.max_env_steps=null",
    )
    for turn in range(options.turns):
        until_s = (turn + 1) * options.turn_s
        for game in options.games:
            for variant, (config, overrides) in VARIANTS.items():
                folder = out / f"{game.lower()}-{variant}"
                if turns.seconds(folder) >= until_s:
                    continue
                print(f"{folder.name}: to {until_s:.0f} s", file=sys.stderr)
                named = (f"env.id=ALE/{game}-v5", *common, *overrides)
                turns.train(config, named, folder, until_s)
    writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    writer.writeheader()
    rows = []
    for game in options.games:
        folders = {name: out / f"{game.lower()}-{name}" for name in VARIANTS}
        runs = {name: list(turns.turns_of(folder)) for name, folder in folders.items()}
        rows.append(row(game, options.actors, runs))
        writer.writerow(rows[-1])
    print(table(rows), file=sys.stderr)


if __name__ == "__main__":
    main()
