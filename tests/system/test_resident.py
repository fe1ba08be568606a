"""A run whose trainer steps the environments: Ctrl-C and `kill -9`."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from aclearn.runs import load_newest
from tests.support.metrics_lines import check_line
from tests.support.system import RESIDENT, System

pytest.importorskip("aclearn.resident")


def test_a_batch_of_minutes_is_no_silence_and_ctrl_c_ends_it_with_a_checkpoint(
    system: System,
) -> None:
    # 32 passes over 1.28 million steps
    groups: dict[str, Any] = {
        "resident": {"envs": 20_000, "device": "cpu"},
        "policy": {"architecture": "mlp", "hidden": [64, 64]},
        "actors": {"unroll_length": 64, "step_timeout_s": 2.0},
        "trainer": {"device": "cpu", "amp": "off", "minibatches": 16, "epochs": 32},
        "loss": {"kind": "ppo"},
        "monitor": {"heartbeat_every_s": 0.1, "silent_after_s": 10.0},
    }
    run = system.train(system.config(RESIDENT, **groups))
    run.wait_for(lambda: run.pids().get("trainer-0"), "the trainer is started")
    pid = run.pids()["trainer-0"]
    run.wait_for(lambda: "trainer" in (run.last()["wait_share"] or ()), "it sends heartbeats")
    known_at = run.last()["time_s"]
    run.wait_for(lambda: run.last()["time_s"] > known_at + 20.0, "twenty seconds of the batch")
    assert run.last()["updates"] == 0 and run.pids()["trainer-0"] == pid
    summary = run.finish(signal.SIGINT)
    assert "died" not in run.output and "Traceback" not in run.output
    assert summary["in_flight_steps"] == 0
    dropped = summary["dropped_steps"].get("shutdown", 0)
    assert summary["learned_steps"] + dropped == summary["env_steps"]
    checkpoint = load_newest(run.folder / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.state["counters"]["updates"] == summary["updates"]
    assert checkpoint.state["account"]["learned_steps"] == summary["learned_steps"]


def test_a_killed_trainer_goes_on_from_its_checkpoint(system: System) -> None:
    run = system.train(system.config(RESIDENT))
    run.wait_for(
        lambda: (saved := load_newest(run.folder / "checkpoints")) and saved.label > 0,
        "a checkpoint of something learned",
    )
    before, pids = run.last(), run.pids()
    run.kill_role("trainer-0")
    new = run.wait_for_new("trainer-0", pids["trainer-0"])
    after = run.wait_for(
        lambda: (
            (line := run.last())["generation"] == 1
            and line["learned_steps"] > before["learned_steps"] + 2000
            and line
        ),
        "the new trainer learns more than the old one had",
    )
    assert run.pids() == pids | {"trainer-0": new}
    # steps after the checkpoint do not exist; none is lost otherwise
    assert after["dropped_steps"] == {} and after["episodes"] > before["episodes"]
    run.signal(signal.SIGINT)
    assert run.wait(within_s=10.0) == 128 + signal.SIGINT, run.diagnosis()
    for line in run.lines():
        check_line(line)
    saved = load_newest(run.folder / "checkpoints")
    assert saved is not None
    assert saved.state["account"]["learned_steps"] == run.summary()["learned_steps"]
