"""How fast this machine learns, beside how fast it could.

    python benchmarks/throughput.py [--only NAME] [--seconds S] [--repeats N] [--set key=value ...]

For each configuration: the emulator, inference and a training step alone, the limit that follows
for this machine's cores, then the whole system; first of all one unroll's way through the queue.
Prints one JSON line each; README.md beside this file says what each figure means.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parts import PARTS, Cost, measure_part
from unroll_queue import measure as measure_queue
from whole_run import START_WITHIN_S, MetricsLine, start_run

from aclearn.config import load_config
from aclearn.launch.resources import usable_cores

_LOGGER = logging.getLogger("throughput")
_CONFIGS = Path(__file__).resolve().parent.parent / "configs"


@dataclass(frozen=True)
class Setup:
    """A configuration file and what this benchmark changes in it."""

    config: Path
    overrides: tuple[str, ...] = ()


_ONCE = ("trainer.epochs=1", "trainer.minibatches=1")
_NATURE = ("policy.architecture=nature", *_ONCE)
SETUPS = {
    "pong-nature-local": Setup(_CONFIGS / "pong.yaml", (*_NATURE, "actors.inference=local")),
    "pong-nature-predictor": Setup(
        # two groups: one steps while the other's actions are on their way
        _CONFIGS / "pong.yaml",
        (*_NATURE, "actors.inference=predictor", "actors.groups=2"),
    ),
    "pong-accerl-original": Setup(
        _CONFIGS / "pong.yaml",
        ("policy.architecture=accerl-original", *_ONCE, "actors.inference=local"),
    ),
    "pong-impala-resnet": Setup(
        _CONFIGS / "pong.yaml",
        ("policy.architecture=impala-resnet", *_ONCE, "actors.inference=local"),
    ),
    "pong-default": Setup(_CONFIGS / "pong.yaml"),
    "cartpole": Setup(_CONFIGS / "cartpole.yaml"),
}


#: The line about one unroll's way through the queue.
QUEUE = "unroll-queue"


def limit_steps_per_s(costs: Mapping[str, Cost], *, uses: int, cores: int) -> float:
    """Learned agent steps/s of `cores` that do nothing but play, choose and learn.

    A GPU learns beside the cores, so there the slower of the two is the limit.
    """
    acting_s = costs["emulator"].cpu_s + costs["inference"].cpu_s
    if costs["training"].detail["device"] == "cpu":
        return cores / (acting_s + uses * costs["training"].cpu_s)
    return min(cores / acting_s, 1 / (uses * costs["training"].wall_s))


def measure_busy(
    part: str, config: Path, overrides: Sequence[str], seconds: float, *, copies: int
) -> Cost:
    """The mean cost of a part while every core is busy with a copy of it.

    Cores that share a cache, a memory bus or (as two threads) one physical core are slower
    together than one of them is alone.
    """
    with ThreadPoolExecutor(copies) as pool:
        tasks = [pool.submit(measure_part, part, config, overrides, seconds) for _ in range(copies)]
        costs = [task.result() for task in tasks]
    return replace(
        costs[0],
        cpu_s=statistics.fmean(cost.cpu_s for cost in costs),
        wall_s=statistics.fmean(cost.wall_s for cost in costs),
    )


def steady_state(
    setup: Setup, overrides: Sequence[str], *, warm_up_s: float, seconds: float
) -> dict[str, Any]:
    """The whole system's figures over `seconds` that begin `warm_up_s` after the first update."""
    with start_run(setup.config, (*setup.overrides, *overrides)) as run:
        begun = run.wait_for_line(learned=True, within_s=START_WITHIN_S)
        first = run.wait_for_line(at_least_s=begun["time_s"] + warm_up_s)
        cpu_before = run.cpu_seconds()
        last = run.wait_for_line(at_least_s=first["time_s"] + seconds)
        cpu_after = run.cpu_seconds()
        lines = [line for line in run.lines() if first["time_s"] < line["time_s"] <= last["time_s"]]
    return run_figures(first, lines, cpu_before, cpu_after)


def run_figures(
    first: MetricsLine,
    lines: Sequence[MetricsLine],
    cpu_before: Mapping[str, float],
    cpu_after: Mapping[str, float],
) -> dict[str, Any]:
    """Figures of a run between the line `first` and the last of `lines`.

    Raises:
        RuntimeError: nothing was learned, or a process died between the two.
    """
    last = lines[-1]
    learned = last["learned_steps"] - first["learned_steps"]
    produced = last["env_steps"] - first["env_steps"]
    wall_s = last["time_s"] - first["time_s"]
    if learned <= 0 or set(cpu_before) != set(cpu_after):
        raise RuntimeError(
            f"no steady state: {learned} steps learned, processes {sorted(cpu_before)} before "
            f"and {sorted(cpu_after)} after"
        )
    dropped = sum(last["dropped_steps"].values()) - sum(first["dropped_steps"].values())
    cpu_s = {name: cpu_after[name] - cpu_before[name] for name in cpu_after}
    return {
        "learned_steps_per_s": learned / wall_s,
        "cpu_share": sum(cpu_s.values()) / (wall_s * usable_cores()),
        "cpu_ms_per_learned_step": {
            name: 1000 * used_s / learned for name, used_s in sorted(cpu_s.items())
        },
        "wait_share": mean_wait_share(lines),
        "lag_mean": statistics.fmean(line["lag_mean"] for line in lines),
        "dropped_share": dropped / produced if produced else 0.0,
    }


def mean_wait_share(lines: Sequence[MetricsLine]) -> dict[str, dict[str, float]]:
    """`wait_share` of the lines, averaged."""
    sums: dict[str, dict[str, float]] = {}
    for line in lines:
        for role, parts in line["wait_share"].items():
            of_role = sums.setdefault(role, {})
            for label, share in parts.items():
                of_role[label] = of_role.get(label, 0.0) + share / len(lines)
    return sums


def measure(
    setup: Setup, overrides: Sequence[str], *, warm_up_s: float, seconds: float, part_s: float
) -> dict[str, Any]:
    """All figures of one configuration, once."""
    together = (*setup.overrides, *overrides)
    config = load_config(setup.config, together)
    uses, cores = config.trainer.epochs, usable_cores()
    costs, busy_costs = {}, {}
    for part in PARTS:
        costs[part] = measure_part(part, setup.config, together, part_s)
        busy_costs[part] = measure_busy(part, setup.config, together, part_s, copies=cores)
        _LOGGER.info(
            "part=%s cpu_ms=%.4f busy_cpu_ms=%.4f",
            part,
            1000 * costs[part].cpu_s,
            1000 * busy_costs[part].cpu_s,
        )
    limit = limit_steps_per_s(costs, uses=uses, cores=cores)
    busy_limit = limit_steps_per_s(busy_costs, uses=uses, cores=cores)
    whole = steady_state(setup, overrides, warm_up_s=warm_up_s, seconds=seconds)
    _LOGGER.info("learned_steps_per_s=%.0f limit=%.0f", whole["learned_steps_per_s"], limit)
    cpu_ms = sum(whole["cpu_ms_per_learned_step"].values())
    return {
        **{f"{part}_steps_per_s": 1 / cost.cpu_s for part, cost in costs.items()},
        **{f"{part}_steps_per_wall_s": 1 / cost.wall_s for part, cost in costs.items()},
        "limit_steps_per_s": limit,
        "ratio": whole["learned_steps_per_s"] / limit,
        "busy_limit_steps_per_s": busy_limit,
        "busy_ratio": whole["learned_steps_per_s"] / busy_limit,
        "cpu_efficiency": 1000 * cores / limit / cpu_ms,
        **whole,
        "amp": costs["training"].detail["amp"],
        "device": costs["training"].detail["device"],
        "torch": costs["training"].detail["torch"],
        "runtime": costs["inference"].detail["runtime"],
        "uses": uses,
    }


def report(
    name: str, overrides: Sequence[str], measured: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The line of a configuration: the run in the middle by speed, and the spread of all."""
    by_speed = sorted(measured, key=lambda figures: figures["learned_steps_per_s"])
    spread = {}
    for key in (
        "learned_steps_per_s",
        "limit_steps_per_s",
        "ratio",
        "busy_limit_steps_per_s",
        "busy_ratio",
        "cpu_efficiency",
    ):
        values = [figures[key] for figures in measured]
        spread[key] = {
            "median": statistics.median(values),
            "min": min(values),
            "max": max(values),
            "all": values,
        }
    return {
        "name": name,
        "cores": usable_cores(),
        "cpu": cpu_model(),
        **by_speed[(len(by_speed) - 1) // 2],
        "overrides": list(overrides),
        "repeats": spread,
    }


def cpu_model() -> str:
    """The CPU's name."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def rounded(value: Any) -> Any:
    """`value` with every number cut to four significant digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=sorted([*SETUPS, QUEUE]), help="one of the lines")
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="steady state of the whole system"
    )
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds before it")
    parser.add_argument("--part-seconds", type=float, default=8.0, help="for each part alone")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="key=value", dest="overrides"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="time=%(asctime)s %(message)s")
    if options.only in (None, QUEUE):
        pong = SETUPS["pong-nature-local"]
        queue = measure_queue(pong.config, [*pong.overrides, *options.overrides], seconds=3.0)
        sys.stdout.write(json.dumps({"name": QUEUE, **queue}) + "\n")
        sys.stdout.flush()
    for name, setup in SETUPS.items():
        if options.only not in (None, name):
            continue
        measured = []
        for number in range(options.repeats):
            _LOGGER.info("configuration=%s repeat=%d", name, number + 1)
            measured.append(
                measure(
                    setup,
                    options.overrides,
                    warm_up_s=options.warm_up,
                    seconds=options.seconds,
                    part_s=options.part_seconds,
                )
            )
        line = report(name, [*setup.overrides, *options.overrides], measured)
        sys.stdout.write(json.dumps(rounded(line)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
