"""The arithmetic of a profile, and its watch; a real run is a system test."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from aclearn.errors import AclearnError, ConfigError
from aclearn.launch import StopFlag
from services.commands.profile import ProfileWatch, load_profiled, profile
from services.commands.step_profile import Snapshot, StepProfile, render, step_profile


def _line(time_s: float, learned: int, **parts: dict[str, float]) -> dict[str, Any]:
    return {"time_s": time_s, "learned_steps": learned, "part_seconds": parts}


def _profile() -> StepProfile:
    """10 s on two cores in which 1 000 steps were learned; two actors, one trainer thread."""
    first = Snapshot(
        100.0,
        _line(50.0, 500, actor={"emulator": 1.0, "total": 30.0}),
        {"actor-0": 1.0, "actor-1": 1.0, "trainer-0": 7.0, "monitor-0": 0.5},
    )
    last = Snapshot(
        110.0,
        _line(
            60.0,
            1500,
            actor={
                "emulator": 9.0,
                "waiting for training queue": 6.0,
                "wire": 1.0,
                "gadget": 0.5,
                "inference": 4.0,
                "total": 50.0,
            },
            trainer={"backward": 5.0, "forward": 3.0, "waiting for unrolls": 1.0, "total": 10.0},
        ),
        {"actor-0": 4.0, "actor-1": 4.0, "trainer-0": 15.0, "monitor-0": 0.6},
    )
    return step_profile(first, last, cores=2)


def test_times_are_told_by_part_and_role_for_each_learned_step_and_add_up() -> None:
    measured = _profile()
    actor, trainer, monitor = measured.roles
    assert (actor.role, trainer.role, monitor.role) == ("actor", "trainer", "monitor")
    # in the order of a step's way, and unknown ones last
    assert list(actor.parts) == ["emulator", "inference", "wire", "gadget"]
    assert list(trainer.parts) == ["forward", "backward"]
    assert measured.learned_steps_per_s == 100.0
    assert measured.micros(actor.parts["emulator"]) == pytest.approx(8000.0)  # 8 s / 1000
    # 8 + 4 + 1 + 0.5 of work and 6 of waiting, in 20 s of two actors
    assert actor.accounted == pytest.approx(19.5 / 20.0)
    assert actor.other_s == pytest.approx(0.5)
    assert trainer.accounted == pytest.approx(0.9)
    assert (monitor.total_s, monitor.accounted) == (0.0, 0.0)
    # 14 s of work and other, of which the emulator has 8 of the processes' 6 s of CPU
    assert actor.cpu_of(actor.parts["emulator"]) == pytest.approx(6.0 * 8.0 / 14.0)
    told = measured.to_dict()
    whole = told["roles"]["actor"]
    assert sum(whole["wall_us"].values()) == pytest.approx(20_000.0)
    assert sum(whole["cpu_us"].values()) == pytest.approx(6000.0)
    assert whole["threads"] == pytest.approx(2.0)
    assert told["core_share"] == pytest.approx((3 + 3 + 8 + 0.1) / 20.0)


def test_cpu_time_of_a_longer_look_is_told_for_the_time_of_the_lines() -> None:
    first = Snapshot(0.0, _line(0.0, 0), {"actor-0": 0.0})
    last = Snapshot(12.0, _line(10.0, 10), {"actor-0": 6.0, "actor-1": 3.0})
    # half a core over 10 s; the later process has no first snapshot
    assert step_profile(first, last, cores=1).cpu_s == {"actor-0": pytest.approx(5.0)}


@pytest.mark.parametrize(("time_s", "learned"), [(10.0, 5), (10.0, 4), (0.0, 9)])
def test_a_run_that_learned_nothing_has_no_profile(time_s: float, learned: int) -> None:
    first = Snapshot(0.0, _line(0.0, 5), {})
    last = Snapshot(10.0, _line(time_s, learned), {})
    with pytest.raises(AclearnError, match=r"there is no profile: .*--seconds"):
        step_profile(first, last, cores=1)


def test_the_table_names_parts_waits_what_is_accounted_for_and_what_is_missing() -> None:
    measured = _profile()
    stream = io.StringIO()
    Console(file=stream, width=100).print(render(measured))
    shown = stream.getvalue()
    rows = {tuple(line.split()) for line in shown.splitlines()}
    assert ("actor", "emulator", "8000.0", "40.0%", "3428.6", "17.1%") in rows, shown
    assert ("waiting", "for", "training", "queue", "6000.0", "30.0%") in rows, shown
    assert "actor: accounted for 98% of its time on the clock\n" in shown.replace(" \n", "\n")
    assert "trainer: accounted for 90% of its time" in shown
    first = Snapshot(0.0, _line(0.0, 0), {})
    last = Snapshot(10.0, _line(10.0, 10, trainer={"forward": 8.0, "total": 10.0}), {})
    stream = io.StringIO()
    Console(file=stream, width=100).print(render(step_profile(first, last, cores=1)))
    assert "accounted for 80% of its time on the clock; no part" in stream.getvalue()


@pytest.mark.parametrize("seconds", [0.0, -3.0, float("nan"), float("inf"), 1e9])
def test_a_time_that_cannot_be_measured_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"--seconds: .*more than 0"):
        profile("cartpole", [], seconds=seconds, stop=StopFlag(), stream=io.StringIO())


def test_goals_and_bounds_are_left_out_and_the_run_goes_to_its_own_folder(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "run: {dir: elsewhere, name: mine, target_return: 5, max_env_steps: 10}\n"
        "env: {id: CartPole-v1}\npolicy: {architecture: mlp}\n"
    )
    loaded = load_profiled(config, ["run.max_updates=3"], tmp_path / "t", 20.0)
    assert (loaded.run.dir, loaded.run.name) == (str(tmp_path / "t"), "profile")
    bounds = loaded.run.bounds()
    assert (bounds["target_return"], bounds["max_env_steps"], bounds["max_updates"]) == (None,) * 3
    assert bounds["max_wall_s"] > 20.0  # no process may run forever
    with pytest.raises(ConfigError, match=r"run\.deterministic"):
        load_profiled(config, ["run.deterministic=true"], tmp_path, 20.0)
    with pytest.raises(ConfigError, match=r"actors\.processes"):
        load_profiled(config, ["actors.processes=0"], tmp_path, 20.0)


def test_the_watch_warms_up_looks_twice_and_ends_the_run() -> None:
    stop, stream = StopFlag(), io.StringIO()
    watch = ProfileWatch(10.0, warm_up_s=4.0, stop=stop, stream=stream)
    roles = [
        {"name": "actor-0", "pid": os.getpid(), "restarts": 0},
        {"name": "actor-1", "pid": None, "restarts": 0},  # it is being restarted
    ]
    with watch:
        for time_s in (0.0, 1.0):
            watch.update(_line(time_s, 0), roles)
        for time_s in (2.0, 4.0, 5.9):
            watch.update(_line(time_s, 10), roles)
            assert watch.first is None
        watch.update(_line(6.0, 20), roles)
        assert watch.first is not None and watch.first.cpu_s.keys() == {"actor-0", "command"}
        watch.update(_line(15.9, 30), roles)
        assert not stop
        watch.update(_line(16.0, 40), [roles[0] | {"restarts": 1}])
        assert stop and watch.last is not None
        watch.update(_line(30.0, 50), roles)  # the run is ending: no more snapshots
        watch.note("ending the run")
    assert step_profile(watch.first, watch.last, cores=1).learned_steps == 20
    assert watch.notes == ["a role was restarted while it was measured"]
    assert "ending the run" not in stream.getvalue()
