"""`kill -9` of any role: the others stay, the run continues, nothing is learned twice."""

from __future__ import annotations

import os
import signal
from typing import Any

from aclearn.runs import load_newest
from tests.support import wandering
from tests.support.metrics_lines import check_line
from tests.support.system import CARTPOLE, Run, System

_ROOM = {"max_restarts": 20, "backoff_first_s": 0.1, "backoff_max_s": 0.2}


def _kill(run: Run, name: str) -> dict[str, int]:
    """Kill one role, wait for its next incarnation; no other role was restarted."""
    before = run.pids()
    run.kill_role(name)
    new = run.wait_for_new(name, before[name], within_s=10.0)
    after = run.pids()
    assert after == before | {name: new}
    return after


def _goes_on(run: Run) -> None:
    """Wait until more is learned."""
    learned = run.last()["learned_steps"]
    run.wait_for(
        lambda: run.last()["learned_steps"] > learned + 200, "learning goes on", within_s=10.0
    )


def _stop_beyond_its_checkpoint(run: Run, pid: int) -> int:
    """Suspend the trainer with unsaved learning; returns the newest checkpoint's label.

    Right after a checkpoint, with nothing in flight, its death would lose nothing.
    """

    def look() -> int | None:
        os.kill(pid, signal.SIGSTOP)
        checkpoint = load_newest(run.folder / "checkpoints")
        if checkpoint and 0 < checkpoint.label < run.last()["policy_version"]:
            return checkpoint.label
        os.kill(pid, signal.SIGCONT)
        return None

    return run.wait_for(look, "updates beyond a checkpoint with updates")


def _kill_trainer(run: Run) -> None:
    """Kill the trainer; it is back from its checkpoint under a new generation within 10 s."""
    pids = run.pids()
    label = _stop_beyond_its_checkpoint(run, pids["trainer-0"])
    before = run.last()
    run.kill_role("trainer-0")

    def comes_back() -> dict[str, Any] | None:
        lines = [line for line in run.lines() if line["generation"] == before["generation"] + 1]
        if not lines:
            return None
        # learned steps beyond the newest checkpoint that the old one can have written
        learns = lines[-1]["learned_steps"] > before["learned_steps"] + 200
        publishes = lines[-1]["policy_version"] > lines[0]["policy_version"]
        return lines[-1] if learns and publishes else None

    after = run.wait_for(comes_back, "the new trainer learns and publishes", within_s=10.0)
    assert run.pids() == pids | {"trainer-0": run.pids()["trainer-0"]}
    assert label <= after["policy_version"]
    check_line(after)
    assert after["learned_steps"] <= after["env_steps"]
    # the killed trainer's steps are accounted for
    lost = {"trainer_restart", "lost", "old_generation"}
    assert sum(after["dropped_steps"].get(reason, 0) for reason in lost) > 0, after


_CHAIN = {"chain": ["int8", "onnx"], "every_s": 0.05, "observations_every_s": 0.2}


def _compressed(run: Run, beyond: int = -1) -> dict[str, Any]:
    """The first line with steps on artifacts, the newest of which is newer than `beyond`."""

    def look() -> dict[str, Any] | None:
        line = run.last()
        newest = line.get("compressor_artifact_version", -1)
        return line if line.get("compressed_share") == 1.0 and newest > beyond else None

    return run.wait_for(look, f"an artifact of the chain is newer than {beyond}")


def test_a_run_outlives_the_death_of_each_of_its_roles(system: System) -> None:
    # Given a folder that is relative, and environments that change the working directory
    system.cwd, elsewhere = system.folder / "here", system.folder / "elsewhere"
    system.cwd.mkdir()
    elsewhere.mkdir()
    wandering.copy_into(system.cwd)
    run = system.train(
        system.config(
            CARTPOLE,
            run={"dir": "runs"},
            env={"id": "wandering:Wandering", "kwargs": {"to": str(elsewhere)}},
            actors={"inference": "predictor", "processes": 2},
            compressor=_CHAIN,
            supervisor=_ROOM,
        )
    )
    run.folder = system.cwd / "runs" / "r"
    run.wait_until_learning(beyond=300)
    _check_compression(run)
    top = system.command("top", run.folder)
    assert top.wait() == 0, top.output
    assert "the run continues" in top.output and "Bottleneck" in top.output

    _kill(run, "actor-0")
    _goes_on(run)
    assert "actor-0" in run.output and "SIGKILL" in run.output
    _kill(run, "predictor-0")
    _goes_on(run)  # the actors ask the new one
    version = run.last()["policy_version"]
    _kill(run, "compressor-0")
    _compressed(run, beyond=version)
    _kill_trainer(run)
    _kill_monitor(run)
    assert run.last()["generation"] == 1

    ended = ("actor-0", "predictor-0", "compressor-0", "trainer-0")
    pids = run.pids()
    for name in ended:
        os.kill(pids[name], signal.SIGTERM)
    for name in ended:
        run.wait_for_new(name, pids[name], within_s=10.0)
        assert f"{name} died: exit status 143; restart " in run.output
    run.wait_for(lambda: run.last()["generation"] == 2, "the new trainer heartbeats")
    _goes_on(run)
    assert {name: pid for name, pid in run.pids().items() if name not in ended} == {
        name: pid for name, pid in pids.items() if name not in ended
    }
    assert run.finish()["generation"] == 2
    here = {path.name for path in system.cwd.iterdir()}
    assert here - {"__pycache__"} == {"runs", "wandering.py"}
    assert list(elsewhere.iterdir()) == []


def _check_compression(run: Run) -> None:
    # the first artifacts are made before any observation has come that they could be compared at
    run.wait_for(lambda: run.last().get("compressor_kl_mean"), "an artifact is compared")
    line = _compressed(run)
    assert line["predictor_policy_refused"] == 0.0 < line["predictor_policy_swaps"]
    assert 0.0 < line["compressor_kl_mean"] < 1.0
    assert 0.0 < line["compressor_cpu_share"] <= 1.0
    assert line["compressor_errors"] == 0.0 <= line["compressor_uncompressed_artifacts"]
    run.wait_for(lambda: run.last()["compressor_artifacts"] > 5, "it has made some")


def _kill_monitor(run: Run) -> None:
    """Kill the monitor; data and counters continue, the roles say hello again."""
    _goes_on(run)  # steps that an earlier trainer lost are counted
    pids = _kill(run, "monitor-0")
    before = run.last()  # the old monitor may have written one more line when it was killed
    run.wait_for(
        lambda: run.last()["learned_steps"] > before["learned_steps"] + 200,
        "the new monitor reports",
        within_s=10.0,
    )
    after = run.last()
    assert after["generation"] == before["generation"]
    assert after["dropped_steps"].get("lost", 0) == before["dropped_steps"].get("lost", 0)
    assert run.pids() == pids
    known = {"actor", "predictor", "trainer", "compressor"}
    run.wait_for(lambda: known <= set(run.last()["wait_share"]), "all have said hello again")
