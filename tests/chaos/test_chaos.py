"""A run under a seeded plan of faults, judged by invariants alone.

`make chaos SEED=7 MINUTES=30` plays another plan, for longer. A failure prints the command that
repeats it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.faults import Chaos
from tests.chaos.invariants import (
    check_lines_of,
    check_nothing_learned_twice,
    wait_until_whole,
)
from tests.chaos.plan import Cast, plan
from tests.chaos.relay import ANNOUNCED, HERE, relays
from tests.chaos.vital_signs import VitalSigns
from tests.support.disk import Disk, InjectedDisk, mounted_disk
from tests.support.system import CARTPOLE, Run, System
from tests.support.visitor import Visitor

# as long as it must; each of its waits has a deadline
pytestmark = pytest.mark.timeout(7200)

SEED = int(os.environ.get("ACLEARN_CHAOS_SEED", "3"))
#: Minutes of faults, of all casts together.
MINUTES = float(os.environ.get("ACLEARN_CHAOS_MINUTES", "2"))
#: Room for logs, metrics and checkpoints of half an hour.
_DISK = "256m"
#: Points, mean of an evaluation.
_TARGET = 475.0

_RUN: dict[str, Any] = CARTPOLE | {
    "policy": {"architecture": "mlp", "hidden": [64, 64]},
    "actors": {
        "processes": 2,
        "envs_per_group": 8,
        "unroll_length": 32,
        "step_timeout_s": 2.0,  # less than monitor.silent_after_s
    },
    "trainer": {
        "device": "cpu",
        "amp": "off",
        # batches of 1 024 steps: with 256 the return rises and falls by hundreds
        "unrolls_per_batch": 4,
        "epochs": 10,
        "minibatches": 4,
        "max_lag_versions": 20,
    },
    "loss": {"kind": "ppo", "discount": 0.99, "clip_range": 0.2},
    # constant: it must not end before a policy that faults have delayed is good
    "optimiser": {"learning_rate": 3e-4},
    "evaluator": {"every_s": 5.0, "episodes": 10},
    "supervisor": {"max_restarts": 1000, "backoff_first_s": 0.1, "backoff_max_s": 0.2},
}
_CORRECTORS = [{"vtrace": {"lambda": 0.95}}, "importance_sampling"]
_CASTS: dict[str, dict[str, Any]] = {
    "all_roles": {
        "actors": {**_RUN["actors"], "inference": "predictor"},
        "compressor": {"chain": ["int8", "onnx"], "every_s": 0.5, "observations_every_s": 0.5},
    },
    "ranks": {"trainer": {**_RUN["trainer"], "processes": 2}},
}
#: Connections with relays: those at a port that one process has.
_LINKS = {
    "all_roles": ("unrolls", "weights", "predictions", "artifacts"),
    "ranks": (),
}
_BACK_WITHIN_S = {"all_roles": 10.0, "ranks": 15.0}


@contextmanager
def _disk(folder: Path) -> Iterator[Disk]:
    with mounted_disk(_DISK) as disk:
        yield disk if isinstance(disk, Disk) else InjectedDisk(folder / "disk", folder)


@pytest.mark.parametrize("cast", _CASTS)
def test_a_run_outlives_a_seeded_plan_of_faults(system: System, cast: str) -> None:
    seconds = 60.0 * MINUTES / len(_CASTS)
    links = (*_LINKS[cast], "monitor")
    played: list[str] = []
    with ExitStack() as stack:
        disk = stack.enter_context(_disk(system.folder))
        found, ports = stack.enter_context(relays(links))
        config = system.config(
            _RUN | _CASTS[cast],
            run={
                "dir": str(disk.path),
                "audit": True,
                "target_return": _TARGET,
                "stop_at_target": False,
            },
            correctors=_CORRECTORS,
            monitor={"heartbeat_every_s": 0.1, "port": ports["monitor"], "silent_after_s": 15.0},
            network={
                "bind_host": HERE,
                "announce_host": ANNOUNCED if _LINKS[cast] else None,
                "ports": {link: ports[link] for link in _LINKS[cast]},
            },
        )
        run = system.train(config)
        run.wait_until_learning(beyond=1000)
        # an actor of another machine: its connection to the monitor has a relay too
        there = f"tcp://{ANNOUNCED}:{ports['monitor']}"
        guest = system.role("actor", config, there)
        visitor = Visitor(f"tcp://{HERE}:{ports['monitor']}")
        stack.callback(visitor.close)
        try:
            signs = _play(run, visitor, Chaos(run, found, disk), cast, links, seconds, played)
            run.wait_for(lambda: run.last()["reached_target_at_s"], "the target", within_s=120.0)
            assert guest.process.poll() is None, guest.output
            check_lines_of(run)
            summary = run.finish()
            assert check_nothing_learned_twice(run.folder) > 0
            assert not (growing := signs.growing()), growing
            assert summary["reached_target_at_s"] is not None
        except AssertionError as error:
            told = "\n".join(played)
            again = f"make chaos SEED={SEED} MINUTES={MINUTES:g}"
            raise AssertionError(f"{error}\n{again}, cast {cast}, has played:\n{told}") from error


def _play(
    run: Run,
    visitor: Visitor,
    chaos: Chaos,
    cast: str,
    links: tuple[str, ...],
    seconds: float,
    played: list[str],
) -> VitalSigns:
    """Play rounds of faults for so long; the run is whole again after each."""
    names, signs, begun = set(run.pids()), VitalSigns(), time.monotonic()
    for faults in plan(SEED, Cast(sorted(names), links)):
        played.append(", ".join(map(str, faults)))
        chaos.play(faults)
        over = time.monotonic()
        wait_until_whole(run, visitor, names, within_s=_BACK_WITHIN_S[cast])
        played[-1] += f": back after {time.monotonic() - over:.1f} s"
        print(f"{cast} {over - begun:.0f} s: {played[-1]}", flush=True)
        signs.look(run.pids() | {"supervisor": run.process.pid})
        if time.monotonic() > begun + seconds:
            return signs
    raise AssertionError("a plan has no end")
