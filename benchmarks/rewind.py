"""What the flight recorder costs: learned steps per second of CartPole and Pong, with and without.

    python benchmarks/rewind.py [--seconds 30] [--repeats 5] [--only cartpole]

Each is measured as `aclearn train` in steady state, in turns. Prints one JSON line a configuration:
the medians, their ratio (goal: 0.98 or more), the ratios of the turns, and the share of a trainer
worker's time that recording takes, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from whole_run import START_WITHIN_S, start_run

_CONFIGS = Path(__file__).resolve().parent.parent / "configs"
#: Configuration → batches to keep.
_KEPT = {"cartpole": 256, "pong": 64}
#: The target must not end a measurement.
_ENDLESS = ("run.target_return=null", "run.max_env_steps=null")


def measure(name: str, kept: int | None, warm_up_s: float, seconds: float) -> tuple[float, float]:
    """Learned steps per second, and the share of the time in which a worker records."""
    wanted = "null" if kept is None else kept
    overrides = (*_ENDLESS, f"run.flight_recorder={wanted}")
    with start_run(_CONFIGS / f"{name}.yaml", overrides) as run:
        begun = run.wait_for_line(learned=True, within_s=START_WITHIN_S)
        first = run.wait_for_line(at_least_s=begun["time_s"] + warm_up_s)
        last = run.wait_for_line(at_least_s=first["time_s"] + seconds)
    gone_s = last["time_s"] - first["time_s"]
    rate = (last["learned_steps"] - first["learned_steps"]) / gone_s
    if kept is not None and not last["recorded_batches"]:
        raise RuntimeError(f"{name}: the recorder has ended; see the log of the trainer")
    return rate, (_recorded_s(last) - _recorded_s(first)) / gone_s


def _recorded_s(line: dict[str, Any]) -> float:
    return float(line["part_seconds"]["trainer"].get("record", 0.0))


def main() -> None:
    """Measure each configuration and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=_KEPT)
    given = parser.parse_args()
    for name, kept in _KEPT.items():
        if given.only not in (None, name):
            continue
        pairs = [
            [measure(name, each, given.warm_up, given.seconds) for each in (None, kept)]
            for _ in range(given.repeats)
        ]
        without, recording = (statistics.median(pair[k][0] for pair in pairs) for k in (0, 1))
        print(
            json.dumps(
                {
                    "config": name,
                    "flight_recorder": kept,
                    "learned_steps_per_s": round(recording, 1),
                    "without": round(without, 1),
                    "ratio": round(recording / without, 4),
                    "ratios": [round(on[0] / off[0], 4) for off, on in pairs],
                    "record_share": round(statistics.median(on[1] for _, on in pairs), 5),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
