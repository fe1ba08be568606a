"""More actors than any earlier bound join one run over real sockets, are all counted, and leave."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from synthetic_actors import Herd

from aclearn.config import load_config
from aclearn.launch import allow_many_connections
from services.monitor.status_report import member_names
from services.start.probe import probe_environment
from tests.support.system import CARTPOLE, Run, System, free_port
from tests.support.visitor import Visitor

_ACTORS, _UNROLLS = 600, 2
_SIZES = {"envs_per_group": 1, "unroll_length": 5}
#: Of each actor; its steps are those of whole unrolls.
_STEPS = _UNROLLS * 5


def _line_with(run: Run, **figures: int) -> Callable[[], bool]:
    """Whether the newest line has these figures; it is read a few times a second."""
    looked_at = 0.0

    def look() -> bool:
        nonlocal looked_at
        if time.monotonic() < looked_at + 0.1:
            return False
        looked_at = time.monotonic()
        line = run.last()
        return all(line[name] == value for name, value in figures.items())

    return look


def test_six_hundred_actors_join_a_run_are_counted_to_the_step_and_leave(system: System) -> None:
    allow_many_connections()
    # room for the trainer and the actors, and no more
    path = system.config(
        CARTPOLE,
        actors=_SIZES,
        trainer={"unrolls_per_batch": 20},
        monitor={"heartbeat_every_s": 0.5, "max_processes": _ACTORS + 1},
    )
    address = f"tcp://127.0.0.1:{free_port()}"
    run, trainer = system.role("monitor", path, address), system.role("trainer", path, address)
    config = load_config(path)
    spec = probe_environment(config)
    assert spec is not None
    herd, within_s = Herd(config, address, spec, unrolls_per_s=2.0), 120.0
    herd.most = _UNROLLS
    herd.grow(_ACTORS)

    def all_have(count: int) -> bool:
        return all(actor.acknowledged == count for actor in herd.actors)

    assert herd.run(lambda: all_have(_UNROLLS), within_s), run.diagnosis()
    assert {actor.number for actor in herd.actors} == set(range(_ACTORS))
    steps = _ACTORS * _STEPS
    learned = _line_with(run, env_steps=steps, learned_steps=steps, accounted_env_steps=steps)
    assert herd.run(learned, within_s), run.diagnosis()
    assert run.last()["dropped_steps"] == {} and run.last()["in_flight_steps"] == 0

    visitor = Visitor(address)
    try:
        names = member_names(visitor.status()["members"])
        assert sorted(names) == sorted([*(f"actor-{n}" for n in range(_ACTORS)), "trainer-0"])
        herd.grow(1)
        words = f"the run has {_ACTORS + 1} processes, the most by monitor.max_processes"
        with pytest.raises(RuntimeError, match=words):
            herd.run(lambda: False, within_s)
        herd.close()
        run.wait_for(lambda: visitor.status()["members"] == ["trainer-0"], "all have left")
    finally:
        visitor.close()
    run.signal(signal.SIGTERM)
    assert run.wait() == 0, run.output
    assert trainer.wait(within_s=10.0) == 0, trainer.output
    summary = run.check_account()
    assert (summary["env_steps"], summary["learned_steps"]) == (steps, steps)
    assert summary["dropped_steps"] == {} and summary["monitor_refused_messages"] == 0
