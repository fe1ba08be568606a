"""A long run that must stay flat: memory, descriptors, threads and lag.

    python -m tests.chaos.soak overload [--minutes 10] [--background]
    python -m tests.chaos.soak restarts [--minutes 60] [--background]

`overload` has actors that would make four times the steps that the trainer learns. `restarts` has
compression, an evaluator, and a predictor that is killed every minute. It prints a table as
Markdown, and exits with status 1 if something has grown.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.vital_signs import Sample, VitalSigns, growth, quarters
from tests.support.system import CARTPOLE, Run, System

#: Seconds between two samples, and between two kills of a predictor.
_SAMPLE_EVERY_S, _KILL_EVERY_S = 5.0, 60.0
_LOWEST_PRIORITY = 19

_RUN = {"name": "r", "metrics_every_s": 2.0, "checkpoint_every_s": 10.0}
_MONITOR = {"heartbeat_every_s": 0.5}
#: In the background the end of a run may take a minute.
_SUPERVISOR = {
    "max_restarts": 1000,
    "backoff_first_s": 0.1,
    "backoff_max_s": 0.2,
    "stop_timeout_s": 120.0,
}
_LOSS = {"normalise_advantages": True, "entropy_cost": 0.006}
#: A large network and eight updates a batch: the trainer eats less than one of the actors makes.
OVERLOAD: dict[str, Any] = CARTPOLE | {
    "run": _RUN,
    "monitor": _MONITOR,
    "policy": {"architecture": "mlp", "hidden": [256, 256]},
    "actors": {"processes": 4, "envs_per_group": 16, "unroll_length": 20},
    "trainer": {"device": "cpu", "unrolls_per_batch": 2, "epochs": 4, "minibatches": 2},
    "loss": {"kind": "ppo"},
    "supervisor": _SUPERVISOR,
}
RESTARTS: dict[str, Any] = CARTPOLE | {
    "run": _RUN,
    "monitor": _MONITOR,
    "policy": {"architecture": "mlp", "hidden": [64, 64]},
    "actors": {
        "processes": 2,
        "envs_per_group": 16,
        "unroll_length": 20,
        "inference": "predictor",
    },
    "predictor": {"processes": 2},
    "trainer": {"device": "cpu", "unrolls_per_batch": 2},
    "loss": _LOSS,
    "compressor": {"chain": ["int8", "onnx"], "every_s": 1.0},
    "evaluator": {"every_s": 30.0},
    "supervisor": _SUPERVISOR,
}


@dataclass
class Soak:
    """What was seen of a run."""

    signs: VitalSigns = field(default_factory=VitalSigns)
    lags: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    kills: int = 0

    def watch(self, run: Run, seconds: float, *, kills: bool, background: bool) -> None:
        """Look at the run for so long; its line of metrics must balance each time."""
        begun = time.monotonic()
        kill_at = begun + _KILL_EVERY_S
        while (now := time.monotonic()) < begun + seconds:
            if background:
                yield_cores(run)
            pids = run.pids() | {"supervisor": run.process.pid}
            self.signs.look(pids)
            line = run.last()
            self.lags.append(line["lag_mean"] or 0.0)
            self.waiting.append(_waiting(line))
            if kills and now > kill_at:
                name = f"predictor-{self.kills % 2}"
                run.wait_for_new(name, run.kill_role(name), within_s=60.0)
                self.kills, kill_at = self.kills + 1, now + _KILL_EVERY_S
            time.sleep(_SAMPLE_EVERY_S)
            if run.process.poll() is not None:
                raise AssertionError(f"the run has ended\n{run.diagnosis()}")

    def growing(self) -> list[str]:
        """What has grown, in words."""
        found = self.signs.growing()
        first, last = (statistics.mean(part) for part in quarters(self.lags))
        if last > 1.5 * first + 1.0:
            found.append(f"lag from {first:.2f} to {last:.2f} versions")
        return found

    def table(self) -> list[str]:
        """The longest lives of each name, as Markdown."""
        rows = [
            "| process | samples | RSS, MB | descriptors | threads | |",
            "|---|---|---|---|---|---|",
        ]
        for name in sorted({name for name, _ in self.signs.samples}):
            lives = [s for (its, _), s in self.signs.samples.items() if its == name]
            rows.append(_row(name, max(lives, key=len), len(lives)))
        first, last = (statistics.mean(part) for part in quarters(self.lags))
        rows.append(f"\nlag {first:.2f} → {last:.2f} versions; kills {self.kills}; actors wait ")
        rows[-1] += f"{100 * statistics.mean(self.waiting):.0f} % of their time for the trainer"
        return rows


def _row(name: str, samples: Sequence[Sample], lives: int) -> str:
    first, last = quarters(samples)
    cells = [
        f"{statistics.median(getattr(s, key) for s in first):.0f} → "
        f"{statistics.median(getattr(s, key) for s in last):.0f}"
        for key in ("rss_mb", "descriptors", "threads")
    ]
    verdict = "; ".join(growth(samples)) or "flat"
    return f"| {name} ({lives} starts) | {len(samples)} | {' | '.join(cells)} | {verdict} |"


def _waiting(line: dict[str, Any]) -> float:
    """The share of their time in which actors wait for the trainer."""
    shares = line["wait_share"].get("actor", {})
    return float(sum(share for what, share in shares.items() if what == "training queue"))


def yield_cores(run: Run) -> None:
    """Leave the cores to all others: each role is a session, which the kernel weighs as one."""
    for pid in (*run.pids().values(), run.process.pid):
        with contextlib.suppress(OSError):  # it has ended, or the kernel has no such groups
            Path(f"/proc/{pid}/autogroup").write_text(str(_LOWEST_PRIORITY))


def main() -> int:
    """Run one, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("overload", "restarts"))
    parser.add_argument("--minutes", type=float, default=None)
    parser.add_argument("--background", action="store_true", help="at the lowest priority")
    options = parser.parse_args()
    overload = options.kind == "overload"
    seconds = 60.0 * (options.minutes or (10.0 if overload else 60.0))
    if options.background:
        os.nice(_LOWEST_PRIORITY)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        sockets = Path(folder) / "s"
        sockets.mkdir()
        system = System(Path(folder), sockets, uuid.uuid4().hex)
        try:
            run = system.train(system.config(OVERLOAD if overload else RESTARTS))
            run.wait_until_learning(beyond=5_000)
            soak = Soak()
            soak.watch(run, seconds, kills=not overload, background=options.background)
            summary = run.finish(within_s=150.0)
        finally:
            system.kill_everything()
    growing = soak.growing()
    counts = {k: summary[k] for k in ("env_steps", "learned_steps", "dropped_steps", "updates")}
    sys.stdout.write("\n".join([*soak.table(), str(counts), *growing]) + "\n")
    return 1 if growing else 0


if __name__ == "__main__":
    sys.exit(main())
