"""`aclearn.train` in a program of the user's, with roles as processes."""

from __future__ import annotations

import json
import signal

from aclearn.runs import load_newest
from tests.support.system import CARTPOLE, System
from tests.support.waiting import wait_for

_PROGRAM = """
import sys

import aclearn

config, folder = sys.argv[1:]
try:
    aclearn.train(config)
except KeyboardInterrupt:
    print("interrupted", flush=True)
run = aclearn.open_run(folder)
aclearn.train(config, {"run.max_updates": run.summary["updates"] + 5}, resume=True)
print("over", run.summary["reason"], int(run.metrics["generation"][-1]), flush=True)
aclearn.train(config, {"run.name": "other"})
"""


def test_an_interrupted_run_is_saved_and_resumed_and_a_later_sigterm_ends_the_program(
    system: System,
) -> None:
    config = system.config(CARTPOLE, run={"checkpoint_every_s": 3600.0})
    folder = system.folder / "runs" / "r"
    script = system.folder / "program.py"
    script.write_text(_PROGRAM)

    def learning(name: str) -> bool:
        metrics = folder.parent / name / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return any(json.loads(line)["updates"] > 3 for line in lines)

    program = system.python(script, config, folder)
    wait_for(lambda: learning("r"), "it learns", context=lambda: program.output)
    # as the kernel of a notebook is interrupted
    program.signal(signal.SIGINT)
    wait_for(
        lambda: "interrupted" in program.output,
        "the run has ended",
        within_s=20.0,
        context=lambda: program.output,
    )
    assert json.loads((folder / "summary.json").read_text())["reason"] == "SIGINT"
    checkpoint = load_newest(folder / "checkpoints")
    assert checkpoint is not None and checkpoint.state["counters"]["updates"] > 3
    wait_for(lambda: learning("other"), "a third run learns", context=lambda: program.output)
    assert "over max_updates 1" in program.output and "next: aclearn evaluate" in program.output
    program.signal(signal.SIGTERM)
    assert program.wait(within_s=20.0) == -signal.SIGTERM
    assert load_newest(folder.parent / "other" / "checkpoints").state["counters"]["updates"] > 3
    assert "Traceback" not in program.output
    system.wait_until_nothing_lives(within_s=10.0)


_UNGUARDED = """
import sys

import aclearn
from gymnasium.envs.classic_control import CartPoleEnv

print("begins", flush=True)
aclearn.train(sys.argv[1] if sys.argv[1:] else "c.yaml")
"""


def test_a_script_without_a_main_guard_starts_one_process_and_names_the_cure(
    system: System,
) -> None:
    config = system.config(CARTPOLE, env={"id": "unguarded:CartPoleEnv"})
    script = system.folder / "unguarded.py"
    script.write_text(_UNGUARDED)
    program = system.python(script, config)
    assert program.wait(within_s=60.0) == 1
    # the program itself, and the process that looks at its environment
    assert program.output.count("begins") == 1, program.output
    cure = 'put the call under `if __name__ == "__main__":`'
    assert program.output.splitlines()[-1].count(cure) == 1
    assert not (system.folder / "runs").exists()
