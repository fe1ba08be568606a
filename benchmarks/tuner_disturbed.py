"""The tuner while other processes take one core for two minutes.

    python benchmarks/tuner_disturbed.py [--workload trainers] --out DIR

One run of a workload of `tuner.py`, from the largest counts. After `--before` minutes, processes
compute on one core for `--taken` minutes; `--after` minutes follow. Prints one JSON line (rate and
counts at the end of each part) and draws DIR/disturbed.png with the time without the core shaded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuner import decisions, pair, run
from tuner_workloads import WORKLOADS

from aclearn.runs import read_metrics
from aclearn.views.learning_curves import time_unit
from aclearn.views.tuner_plot import draw_tuner, read_tuner_history

#: Processes on the core; each other process gets a fifth of it at most.
_THIEVES = 4
_START_WITHIN_S = 120.0
#: Last seconds of each part, over which its rate is taken.
_LAST_S = 45.0


@contextmanager
def core_taken(core: int) -> Iterator[None]:
    """Processes that compute on one core, each in its own session and CPU share."""
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile os.getppid() > 1: pass"
    thieves = [
        subprocess.Popen([sys.executable, "-c", spin], start_new_session=True)
        for _ in range(_THIEVES)
    ]
    try:
        yield
    finally:
        for thief in thieves:
            thief.kill()
        for thief in thieves:
            thief.wait()


def time_of_run(folder: Path) -> float:
    """`time_s` of the newest metrics line; 0 before the first."""
    path = folder / "metrics.jsonl"
    lines = read_metrics(path) if path.exists() else []
    return float(lines[-1]["time_s"]) if lines else 0.0


def rate_between(folder: Path, begin_s: float, end_s: float) -> float:
    """Learned steps per second between two times of the run's clock."""
    lines = [
        line
        for line in read_metrics(folder / "metrics.jsonl")
        if begin_s <= line["time_s"] <= end_s
    ]
    learned = lines[-1]["learned_steps"] - lines[0]["learned_steps"]
    return float(learned / (lines[-1]["time_s"] - lines[0]["time_s"]))


def main() -> None:
    """Run, disturb, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="trainers")
    parser.add_argument("--most", type=int, default=4, help="largest NP and NT")
    parser.add_argument("--window", type=float, default=4.0, help="seconds")
    parser.add_argument("--settle", type=float, default=0.5, help="seconds")
    parser.add_argument("--before", type=float, default=2.5, help="minutes")
    parser.add_argument("--taken", type=float, default=2.0, help="minutes")
    parser.add_argument("--after", type=float, default=2.5, help="minutes")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    folder, name = arguments.out / "disturbed", "disturbed"
    taken_at_s = 60 * arguments.before
    back_at_s = taken_at_s + 60 * arguments.taken
    ends_at_s = back_at_s + 60 * arguments.after
    start = (arguments.most, arguments.most)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run, arguments, "tuner", start, ends_at_s - 15, name)
        deadline = time.monotonic() + _START_WITHIN_S + taken_at_s
        while time_of_run(folder) < taken_at_s:
            if running.done() or time.monotonic() > deadline:
                running.result()
                raise TimeoutError(
                    f"the run did not reach {taken_at_s:g} s in time; see {folder}.log"
                )
            time.sleep(0.5)
        with core_taken(max(os.sched_getaffinity(0))):
            time.sleep(60 * arguments.taken)
        running.result()
    lines = decisions(folder)

    def kept_at(at_s: float) -> tuple[int, int]:
        return pair([line for line in lines if line["time_s"] <= at_s][-1]["kept"])

    parts: dict[str, Any] = {}
    ends = {"before": taken_at_s, "taken": back_at_s, "after": ends_at_s - 5}
    for part, end_s in ends.items():
        rate = rate_between(folder, end_s - _LAST_S, end_s)
        parts[part] = {"kept": kept_at(end_s), "learned_steps_per_s": round(rate, 1)}
    restarted = [round(line["time_s"]) for line in lines if line["verdict"] == "restarted"]
    print(json.dumps({"workload": arguments.workload, **parts, "restarted_at_s": restarted}))
    history = read_tuner_history(folder)
    figure = draw_tuner(history, f"{arguments.workload}, one core taken away")
    _, unit_s = time_unit(history.time_s[-1])
    for axes in figure.axes:
        axes.axvspan(taken_at_s / unit_s, back_at_s / unit_s, color="0.85", zorder=0)
    figure.savefig(arguments.out / "disturbed.png", dpi=150)


if __name__ == "__main__":
    main()
