"""An evaluator as a process: it judges, dies without effect on training, and ends a run early."""

from __future__ import annotations

from typing import Any

from aclearn.runs import load_best
from tests.support.system import CARTPOLE, System

_QUICK: dict[str, Any] = {"every_s": 0.2, "episodes": 2, "cpu_share": 1.0}


def test_training_outlives_its_judge_and_says_what_its_absence_means(system: System) -> None:
    run = system.train(
        system.config(
            CARTPOLE,
            actors={"step_timeout_s": 1.0},
            monitor={"silent_after_s": 10.0},
            supervisor={"max_restarts": 1},
            evaluator=_QUICK | {"keep": 3},
        )
    )

    def judged(beyond: int = 0) -> dict[str, Any] | None:
        line = run.last()
        return line if (line.get("evaluator_evaluations") or 0) > beyond else None

    before = run.wait_for(lambda: judged(1), "two versions are judged")
    others = run.pids()
    first = others.pop("evaluator-0")
    run.kill_role("evaluator-0")
    second = run.wait_for_new("evaluator-0", first)
    count = before["evaluator_evaluations"]
    after = run.wait_for(lambda: judged(count + 1), "the next evaluator judges")
    assert after["evaluator_restarts"] == 1
    assert after["generation"] == 0

    # dead for good: no restart is left
    run.kill_role("evaluator-0")
    run.wait_for(lambda: "there is no evaluator since" in run.output, "its absence is told")
    words = " ".join(run.output.split())
    assert "no restart is left after 1; the others continue" in words
    assert "which judges this run (run.judge)" in words
    learned = run.last()["learned_steps"]
    run.wait_for(lambda: run.last()["learned_steps"] > learned + 200, "learning goes on")
    assert run.pids() == others and second not in others.values()

    summary = run.finish()
    best = load_best(run.folder / "checkpoints")
    assert best is not None and best.state["judged"]["by"] == "evaluator"
    assert best.state["judged"]["return_mean"] == summary["best_return"]
    play = system.command("evaluate", run.folder, "--episodes", "2", "--at", "0")
    assert play.wait() == 0, play.output
    assert "after 0 updates and 0 agent steps" in play.output
    unknown = system.command("evaluate", run.folder, "--at", "7")
    assert unknown.wait() == 64
    assert "no checkpoint after 7 agent steps; choose 0 (0%" in unknown.output


def test_evaluations_that_do_not_improve_end_the_run_with_its_own_words(system: System) -> None:
    # with so small steps every version plays the same episodes in the same way
    stuck = {"learning_rate": 1e-12}
    run = system.train(
        system.config(CARTPOLE, optimiser=stuck, evaluator=_QUICK | {"stop_after": 2})
    )
    assert run.wait() == 0, run.diagnosis()
    summary = run.check_account()
    assert summary["reason"] == "early_stop"
    assert (summary["evaluator_evaluations"], summary["evaluator_since_best"]) == (3, 2)
    words = " ".join(run.output.split())
    assert "ended: early_stop (2 evaluations without a better mean than " in words
    again = system.train(system.folder / "c.yaml", "--resume")
    assert again.wait() == 0
    assert "a higher one, e.g. 4" in " ".join(again.output.split())
