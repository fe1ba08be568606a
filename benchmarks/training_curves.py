"""Collects the curves of `training_time.py` in one table, and draws it.

    python benchmarks/training_curves.py gather DIR --game breakout --setting paper >> FILE.csv
    python benchmarks/training_curves.py draw FILE.csv PICTURE.png
    python benchmarks/training_curves.py table FILE.csv --every 100000

`table` prints mean returns at equal steps. A seed is only compared with itself, so that seeds may
be trained on different days.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from training_time import GAMES

from aclearn.runs import read_metrics

FIELDS = ("game", "setting", "variant", "seed", "time_s", "learned_steps", "return")
#: Seconds between two points that are kept.
_EVERY_S = 10.0
_COLOURS = ("tab:red", "tab:orange", "tab:blue", "tab:green")
_LINES = ("-", "--", ":", "-.")


def points(folder: Path) -> Iterator[tuple[float, int, float]]:
    """Seconds, learned steps and mean return of a run, about every ten seconds and at its end."""
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if line["episodes"]]
    next_s = 0.0
    for line in lines:
        if line["time_s"] >= next_s or line is lines[-1]:
            yield line["time_s"], line["learned_steps"], line["return_mean_100"]
            next_s = line["time_s"] + _EVERY_S


def read(table: Path) -> list[dict[str, str]]:
    """The rows of a table that `gather` wrote."""
    return list(csv.DictReader(table.read_text().splitlines(), fieldnames=FIELDS))


def gather(out: Path, game: str, setting: str) -> None:
    """Print the table's rows of all runs in a folder of `training_time.py`."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    prefix = f"{game}-{setting}-"
    for folder in sorted(out.glob(f"{prefix}*/")):
        variant, _, seed = folder.name.removeprefix(prefix).rpartition("-")
        for time_s, steps, mean in points(folder):
            writer.writerow([game, setting, variant, seed, f"{time_s:.1f}", steps, f"{mean:.2f}"])


def at_equal_steps(rows: Sequence[Mapping[str, str]], every: int) -> Iterator[list[str]]:
    """A header, then a row each `every` steps up to where the first run ends.

    The rows are of one game and setting. A cell is the mean over seeds of the return at the last
    point up to so many learned steps, and the range of several seeds.
    """
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for row in rows:
        curve = curves.setdefault(row["variant"], {}).setdefault(row["seed"], [])
        curve.append((int(row["learned_steps"]), float(row["return"])))
    yield ["steps", *curves]
    end = min(curve[-1][0] for seeds in curves.values() for curve in seeds.values())
    for steps in range(every, end + 1, every):
        cells = []
        for seeds in curves.values():
            found = [[r for at, r in curve if at <= steps][-1:] for curve in seeds.values()]
            returns = [value for each in found for value in each]
            mean = f"{statistics.fmean(returns):.1f}" if returns else ""
            spread = f" ({min(returns):.1f} to {max(returns):.1f})" if len(returns) > 1 else ""
            cells.append(mean + spread)
        yield [f"{steps / 1000:g} k", *cells]


def draw(table: Path, picture: Path) -> None:
    """Draw returns over time and over steps; a colour for each variant, a style for each seed."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    rows = read(table)
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    seeds = sorted({row["seed"] for row in rows})
    figure = Figure(figsize=(11.0, 4.5), layout="constrained")
    over_time, over_steps = figure.subplots(1, 2, sharey=True)
    for (variant, seed), run in groupby(rows, lambda row: (row["variant"], row["seed"])):
        curve = list(run)
        returns = [float(row["return"]) for row in curve]
        style: dict[str, Any] = {
            "color": _COLOURS[variants.index(variant) % len(_COLOURS)],
            "linestyle": _LINES[seeds.index(seed) % len(_LINES)],
            "label": f"{variant}, seed {seed}",
        }
        over_time.plot([float(row["time_s"]) / 60 for row in curve], returns, **style)
        over_steps.plot([float(row["learned_steps"]) for row in curve], returns, **style)
    for axes in (over_time, over_steps):
        axes.axhline(GAMES[rows[0]["game"]], color="0.35", linestyle="--", linewidth=1.0)
        axes.grid(visible=True, alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(left=0.0)
    over_time.set_xlabel("wall time (minutes)")
    over_time.set_ylabel("mean return of the last 100 episodes")
    over_steps.set_xlabel("learned agent steps")
    over_steps.xaxis.set_major_formatter(EngFormatter(sep=" "))
    handles, texts = over_time.get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(picture, dpi=150)


def main() -> None:
    """Gather, draw or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    gathering = commands.add_parser("gather", help="print a table of all runs in DIR")
    gathering.add_argument("out", type=Path)
    gathering.add_argument("--game", choices=sorted(GAMES), default="breakout")
    gathering.add_argument("--setting", default="paper")
    drawing = commands.add_parser("draw", help="draw a table")
    drawing.add_argument("table", type=Path)
    drawing.add_argument("picture", type=Path)
    comparing = commands.add_parser("table", help="mean returns at equal steps")
    comparing.add_argument("table", type=Path)
    comparing.add_argument("--every", type=int, default=100_000, help="learned agent steps")
    options = parser.parse_args()
    if options.command == "gather":
        gather(options.out, options.game, options.setting)
    elif options.command == "table":
        header, *others = at_equal_steps(read(options.table), options.every)
        for cells in (header, ["---"] * len(header), *others):
            sys.stdout.write(f"| {' | '.join(cells)} |\n")
    else:
        draw(options.table, options.picture)


if __name__ == "__main__":
    main()
