"""Learned steps per second of whole runs, beside the limit of this machine.

    python benchmarks/throughput.py [--only NAME] [--seconds S] [--repeats N] [--set key=value ...]

Each configuration is measured in parts (emulator, inference, training step), then as `aclearn
train` in steady state. Prints one JSON line a configuration; a step is an agent step:

* `limit_steps_per_s`: cores / (emulator + inference + epochs × training), in CPU seconds a step.
  Where a GPU learns, the slower of the cores and the GPU. `ratio` is the run's share of it.
* `busy_…`: the same, each part measured while every core runs a copy of it.
* `…_steps_per_s` of a part is by CPU time, `…_steps_per_wall_s` by the clock.
* `learned_steps_per_s`: from two metrics lines; over 40 s exact to about 1 %.
* `cpu_efficiency`: CPU time of the parts, over that of the run, for a step. Other programs lower it
  less than `ratio`.
* `cpu_share`: CPU time of the run, over cores × time. Well below 1 without a wait that explains it,
  other programs took the cores.
* `wait_share`, `lag_mean`: as in docs/metrics.md; `dropped_share`: steps taken but not learned.
* `repeats`: median, range and all values; the other figures are of the median run.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parts import PARTS, Cost, measure_part
from whole_run import START_WITHIN_S, MetricsLine, start_run

from aclearn.config import load_config
from aclearn.telemetry.cores import usable_cores
from aclearn.telemetry.machine import cpu_model

_LOGGER = logging.getLogger("throughput")
_CONFIGS = Path(__file__).resolve().parent.parent / "configs"


@dataclass(frozen=True)
class Setup:
    """A configuration file and its overrides."""

    config: Path
    overrides: tuple[str, ...] = ()


_ONCE = ("trainer.epochs=1", "trainer.minibatches=1")
_NATURE = ("policy.architecture=nature", *_ONCE)
SETUPS = {
    "pong-nature-local": Setup(_CONFIGS / "pong_vtrace.yaml", (*_NATURE, "actors.inference=local")),
    "pong-nature-predictor": Setup(
        # one group steps while the other waits for its actions
        _CONFIGS / "pong_vtrace.yaml",
        (*_NATURE, "actors.inference=predictor", "actors.groups=2"),
    ),
    "pong-accerl-original": Setup(
        _CONFIGS / "pong_vtrace.yaml",
        ("policy.architecture=accerl-original", *_ONCE, "actors.inference=local"),
    ),
    "pong-impala-resnet": Setup(
        _CONFIGS / "pong_vtrace.yaml",
        ("policy.architecture=impala-resnet", *_ONCE, "actors.inference=local"),
    ),
    "pong-default": Setup(_CONFIGS / "pong_vtrace.yaml"),
    "cartpole": Setup(_CONFIGS / "cartpole.yaml"),
}


def limit_steps_per_s(costs: Mapping[str, Cost], *, epochs: int, cores: int) -> float:
    """Learned agent steps/s of `cores` that only emulate, infer and train.

    Where a GPU trains, the slower of the cores and the GPU is the limit.
    """
    acting_s = costs["emulator"].cpu_s + costs["inference"].cpu_s
    if costs["training"].detail["device"] == "cpu":
        return cores / (acting_s + epochs * costs["training"].cpu_s)
    return min(cores / acting_s, 1 / (epochs * costs["training"].wall_s))


def measure_busy(
    part: str, config: Path, overrides: Sequence[str], seconds: float, *, copies: int
) -> Cost:
    """Mean cost of a part while every core runs a copy of it.

    Cores that share a cache, a memory bus or a physical core slow each other down.
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
    """Figures of a run over `seconds`, from `warm_up_s` after its first update."""
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
        RuntimeError: no step was learned, or a process was replaced, between the two.
    """
    last = lines[-1]
    learned = last["learned_steps"] - first["learned_steps"]
    produced = last["env_steps"] - first["env_steps"]
    wall_s = last["time_s"] - first["time_s"]
    if learned <= 0 or set(cpu_before) != set(cpu_after):
        raise RuntimeError(
            f"no steady state: {learned} steps learned (expected more than 0); processes "
            f"{sorted(cpu_before)} before, {sorted(cpu_after)} after (expected the same)"
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
    epochs, cores = config.trainer.epochs, usable_cores()
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
    limit = limit_steps_per_s(costs, epochs=epochs, cores=cores)
    busy_limit = limit_steps_per_s(busy_costs, epochs=epochs, cores=cores)
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
        "epochs": epochs,
    }


def report(
    name: str, overrides: Sequence[str], measured: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """The output line of a configuration: the median run by speed, and the spread of all runs."""
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


def rounded(value: Any) -> Any:
    """`value` with every float rounded to four significant digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=sorted(SETUPS), help="one configuration")
    parser.add_argument("--seconds", type=float, default=40.0, help="of steady state")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds before it")
    parser.add_argument("--part-seconds", type=float, default=8.0, help="for each part")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="key=value", dest="overrides"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="time=%(asctime)s %(message)s")
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
