"""The checkpoint that `--best` takes."""

from __future__ import annotations

from aclearn.runs import load_best, load_newest
from tests.support.system import CARTPOLE, System


def test_the_best_checkpoint_has_the_highest_mean_of_the_whole_run(system: System) -> None:
    config = system.config(
        CARTPOLE,
        run={"max_updates": 250, "checkpoint_every_s": 1.0},
        optimiser={"learning_rate": 3e-3},
    )
    for arguments in ((), ("run.max_updates=400", "--resume")):
        run = system.train(config, *arguments)
        assert run.wait() == 0, run.diagnosis()
        summary = run.check_account()
        # the last line too: the final policy may be the best
        highest = max(n["return_mean_100"] for n in run.lines() if n["episodes"] >= 100)
        assert summary["best_return"] == highest
        best = load_best(run.folder / "checkpoints")
        newest = load_newest(run.folder / "checkpoints")
        assert best is not None and newest is not None
        assert best.state["return_mean_100"] == summary["best_return"]
        assert best.label <= newest.label == summary["updates"]
    best_return = summary["best_return"]
    play = system.command("evaluate", run.folder, "--episodes", "3", "--best")
    assert play.wait() == 0, play.output
    assert (
        f"after {best.label} updates" in play.output
        and f"a mean of {best_return:.2f}" in play.output
    )
