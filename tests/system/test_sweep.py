"""`aclearn sweep` as a process that is killed."""

from __future__ import annotations

import json
import signal

import pytest
import yaml

from tests.support.system import CARTPOLE, System
from tests.support.waiting import wait_for

pytest.importorskip("optuna")


def test_a_killed_sweep_continues_and_its_best_configuration_trains(system: System) -> None:
    config = system.config(CARTPOLE, run={"deterministic": True, "checkpoint_every_s": 1.0})
    path = system.folder / "sweep.yaml"
    settings = {
        "config": str(config),
        "set": {"evaluator.episodes": 1},
        "name": "s",
        "search": {"optimiser.learning_rate": {"log": [1e-4, 1e-2]}},
        "trials": 2,
        "steps": 600,
        "judgements": 2,
    }
    path.write_text(yaml.safe_dump(settings))
    folder = system.folder / "runs" / "s"
    command = system.command("sweep", path, "--at-once", "1")
    wait_for(
        lambda: "judgement 1 of 2" in command.output,
        "a judgement",
        within_s=180.0,
        context=lambda: command.output,
    )
    command.signal(signal.SIGKILL)
    command.wait()
    system.wait_until_nothing_lives(within_s=20.0)
    before = command.output

    refused = system.command("sweep", path)
    assert refused.wait() == 64 and "continue it with --resume" in refused.output
    path.write_text(yaml.safe_dump(settings | {"steps": 700}))
    refused = system.command("sweep", path, "--resume")
    assert refused.wait() == 64 and "searches otherwise" in refused.output
    path.write_text(yaml.safe_dump(settings))

    command = system.command("sweep", path, "--resume", "--at-once", "1")
    assert command.wait(within_s=300.0) == 0, command.output
    assert "Traceback" not in command.output
    results = json.loads((folder / "sweep.json").read_text())
    assert [each["state"] for each in results["trials"]] == ["complete"] * 2
    assert [list(each["judged"]) for each in results["trials"]] == [["300", "600"]] * 2
    # what was judged before the kill was not judged again
    [line] = [line for line in before.splitlines() if line.startswith("trial 0")]
    assert line not in command.output
    run = system.train(folder / "best.yaml", "run.name=best", "run.max_updates=2")
    assert run.wait(within_s=120.0) == 0, run.output
