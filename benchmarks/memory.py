"""Resident memory of each process of a run, and its drift.

    python benchmarks/memory.py [--minutes 5] [--config configs/pong_vtrace.yaml]
        [--set key=value ...]

Samples every 5 s and prints one JSON line a process. `drift_pct` is the largest change from
`rss_after_first_minute_mb`, `flat` whether it stayed within ±10 %. Shared libraries count in every
process.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from whole_run import START_WITHIN_S, WholeRun, start_run

_LOGGER = logging.getLogger("memory")
_CONFIG = Path(__file__).resolve().parent.parent / "configs" / "pong_vtrace.yaml"
_SAMPLE_EVERY_S = 5.0
#: A process may grow until then: imports, buffers, queues.
_SETTLED_AFTER_S = 60.0
_MOST_DRIFT = 0.10


@dataclass(frozen=True)
class Sample:
    """Resident memory of one process at one time since its first sample."""

    at_s: float
    rss_bytes: int


def watch(run: WholeRun, seconds: float) -> dict[str, list[Sample]]:
    """Samples of every process of the run, by name.

    Raises:
        RuntimeError: a process was replaced, so that its samples cannot be compared.
    """
    started = time.monotonic()
    samples: dict[str, list[Sample]] = {}
    pids: dict[str, int] = {}
    next_at = 0.0
    while next_at <= seconds:
        run.wait_for_line()  # raises when the run has ended
        time.sleep(max(0.0, started + next_at - time.monotonic()))
        for name, process in run.roles().items():
            if pids.setdefault(name, process.pid) != process.pid:
                raise RuntimeError(f"{name} was restarted during the measurement; see its log")
            try:
                rss = process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            samples.setdefault(name, []).append(Sample(time.monotonic() - started, rss))
        next_at += _SAMPLE_EVERY_S
        if round(next_at) % 60 == 0:
            _LOGGER.info("seconds=%.0f processes=%d", next_at, len(samples))
    return samples


def figures(name: str, samples: Sequence[Sample]) -> dict[str, Any]:
    """The output line of one process."""
    settled = [sample.rss_bytes for sample in samples if sample.at_s >= _SETTLED_AFTER_S]
    if not settled:
        raise ValueError(f"{name}: no samples after the first minute; raise --minutes")
    first = settled[0]
    drift = max((rss / first - 1 for rss in settled), key=abs)
    return {
        "role": name.rpartition("-")[0] or name,
        "process": name,
        "rss_after_first_minute_mb": round(first / 1e6, 1),
        "max_mb": round(max(settled) / 1e6, 1),
        "min_mb": round(min(settled) / 1e6, 1),
        "last_mb": round(settled[-1] / 1e6, 1),
        "drift_pct": round(100 * drift, 2),
        "flat": abs(drift) <= _MOST_DRIFT,
        "samples": len(settled),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=_CONFIG)
    parser.add_argument("--minutes", type=float, default=5.0, help="the first does not count")
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="key=value", dest="overrides"
    )
    options = parser.parse_args()
    seconds = 60 * options.minutes
    least_s = _SETTLED_AFTER_S + _SAMPLE_EVERY_S
    if seconds < least_s:
        parser.error(f"--minutes: expected at least {least_s / 60:.2f}, got {options.minutes:g}")
    logging.basicConfig(level=logging.INFO, format="time=%(asctime)s %(message)s")
    with start_run(options.config, options.overrides) as run:
        run.wait_for_line(learned=True, within_s=START_WITHIN_S)
        samples = watch(run, seconds)
    for name, of_process in sorted(samples.items()):
        sys.stdout.write(json.dumps(figures(name, of_process)) + "\n")


if __name__ == "__main__":
    main()
