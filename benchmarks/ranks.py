"""Learned steps per second of Pong: one trainer, one with two workers, two ranks.

    python benchmarks/ranks.py [--seconds 40] [--repeats 3] [--set key=value ...]

Each is measured as `aclearn train` in steady state, in turns (`throughput.steady_state`). Prints
one JSON line a set-up, with the median, the range and all values. Two ranks have twice the batch.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from throughput import Setup, steady_state

_PONG = Path(__file__).resolve().parent.parent / "configs" / "pong_vtrace.yaml"
_ONCE = ("trainer.epochs=1", "trainer.minibatches=1")
SETUPS = {
    "one trainer": Setup(_PONG, _ONCE),
    "two workers": Setup(_PONG, (*_ONCE, "trainer.workers=2")),
    "two ranks": Setup(_PONG, (*_ONCE, "trainer.processes=2")),
    "two ranks, averages": Setup(
        _PONG, (*_ONCE, "trainer.processes=2", "trainer.average_every=16")
    ),
}


def main() -> None:
    """Measure every set-up and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--warm-up", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", nargs="*", default=[], metavar="key=value")
    given = parser.parse_args()
    rates: dict[str, list[float]] = {name: [] for name in SETUPS}
    for _ in range(given.repeats):
        for name, setup in SETUPS.items():
            figures = steady_state(setup, given.set, warm_up_s=given.warm_up, seconds=given.seconds)
            rates[name].append(figures["learned_steps_per_s"])
    for name, all_rates in rates.items():
        print(
            json.dumps(
                {
                    "setup": name,
                    "learned_steps_per_s": round(statistics.median(all_rates), 1),
                    "range": [round(min(all_rates), 1), round(max(all_rates), 1)],
                    "all": [round(rate, 1) for rate in all_rates],
                }
            )
        )


if __name__ == "__main__":
    main()
