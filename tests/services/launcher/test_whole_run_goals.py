"""The end of whole runs, their resumption, and the best checkpoint."""

from __future__ import annotations

from itertools import pairwise

import pytest

from aclearn.runs import load_best
from tests.support.cli import aclearn
from tests.support.metrics_lines import NEVER_FALL, WITHIN_A_GENERATION, check_line, check_lines

#: Many episodes in few updates.
_LARGE = {
    "actors": {"processes": 2, "envs_per_group": 16, "unroll_length": 5},
    "optimiser": {"learning_rate": 5e-3},
    "monitor": {"heartbeat_every_s": 0.25},
}


def finished(run):
    """The summary of a run that ends by itself; its files are consistent."""
    summary = run.run()
    check_lines(run.lines())
    check_line(summary)
    assert summary["in_flight_steps"] == 0
    assert run.checkpoint().label == summary["updates"]
    assert run.checkpoint().state["account"]["learned_steps"] == summary["learned_steps"]
    # a line a second, and one more at the end
    times = [0.0, *(line["time_s"] for line in run.lines())]
    assert max(b - a for a, b in pairwise(times)) <= 1.0 + 1 / 16
    return summary


def test_a_run_ends_at_its_target_and_says_when_it_was_reached(start) -> None:
    # the mean of 100 episodes of the very first policies is above 12 already
    run = start(run={"target_return": 12}, **_LARGE)
    summary = finished(run)
    assert summary["reason"] == "target_reached"
    assert summary["return_mean_100"] >= 12 and summary["episodes"] >= 100
    reached = summary["reached_target_at_s"]
    assert 0 < reached <= summary["wall_s"]
    first = next(line for line in run.lines() if line["reached_target_at_s"] is not None)
    assert reached == first["reached_target_at_s"] == first["time_s"]
    assert first["return_mean_100"] >= 12

    # resumed, to a target that is higher than the mean
    target = summary["return_mean_100"] + 2
    again = start(resume=True, run={"target_return": target}, **_LARGE)
    summary = finished(again)
    assert summary["reason"] == "target_reached"
    # the mean of a later line may be lower: episodes end until the last actor has stopped
    assert any((line["return_mean_100"] or 0.0) >= target for line in again.lines())
    assert reached < summary["reached_target_at_s"] <= summary["wall_s"]


def test_a_run_makes_exactly_its_updates_and_a_resumed_one_counts_on(start) -> None:
    trainer = {"minibatches": 2, "epochs": 2}
    run = start(run={"max_updates": 7}, trainer=trainer)
    summary, before = finished(run), run.lines()
    assert (summary["reason"], summary["updates"]) == ("max_updates", 7)
    again = start(resume=True, run={"max_updates": 21}, trainer=trainer)
    resumed, lines = finished(again), again.lines()
    assert (resumed["reason"], resumed["updates"]) == ("max_updates", 21)
    assert (summary["generation"], resumed["generation"]) == (0, 1)
    assert resumed["learned_steps"] > summary["learned_steps"]
    assert lines[: len(before)] == before
    for name in (*NEVER_FALL, *WITHIN_A_GENERATION):
        values = [line[name] for line in lines]
        assert values == sorted(values), name


def test_many_updates_from_one_batch_do_not_make_the_next_batch_too_old(start) -> None:
    # 32 updates from each batch, and one published version
    trainer = {"minibatches": 8, "epochs": 4, "max_lag_versions": 20}
    summary = finished(start(run={"max_env_steps": 500}, trainer=trainer, **_LARGE))
    assert summary["reason"] == "max_env_steps" and summary["env_steps"] >= 500
    assert summary["dropped_steps"].get("lag", 0) == 0, summary["dropped_steps"]
    assert summary["policy_version"] * 32 == summary["updates"] > 0
    assert summary["lag_max"] <= 20


def test_the_best_checkpoint_has_the_highest_mean_of_the_whole_run(start) -> None:
    worse = {"loss": {"entropy_cost": 100.0}}  # the policy becomes uniform
    # with or without other checkpoints
    for updates, every_s, groups in ((30, 0.25, {}), (60, 1000.0, {}), (90, 0.25, worse)):
        bounds = {"max_updates": updates, "checkpoint_every_s": every_s}
        run = start(resume=updates > 30, run=bounds, **_LARGE | groups)
        summary = finished(run)
        assert run.lines()[0]["best_return"] is None
        # the last line too: the final policy may be the best
        highest = max(n["return_mean_100"] for n in run.lines() if n["episodes_in_mean"] >= 100)
        assert summary["best_return"] == highest
        best = load_best(run.path / "checkpoints")
        assert best is not None and best.state["judged"]["return_mean"] == highest
        assert 0 < best.label <= summary["updates"] == updates
        # each step gives 1: the returns of a hundred episodes are no more than the steps so far
        assert 100 * highest < best.state["account"]["learned_steps"] + 1
    assert summary["return_mean_100"] < highest and best.label < updates
    played = aclearn("evaluate", str(run.path), "--episodes", "3", "--at", "best")
    assert f"after {best.label} updates" in played and f"a mean of {highest:.2f}" in played


def test_short_episodes_that_end_first_meet_no_target_and_make_no_best(start) -> None:
    # as likely 5 as 155 steps of -1; the first hundred to end are the short ones
    long_or_short = {"env": {"id": "tests.support.space_envs:LongOrShort"}}
    bounds = {"target_return": -50, "max_env_steps": 16_000}
    run = start(run=bounds, **long_or_short | _LARGE)
    summary = finished(run)
    early = [line for line in run.lines() if line["episodes"] >= 100]
    assert early and early[0]["episodes_in_mean"] < 100
    assert summary["reason"] == "max_env_steps"
    assert summary["episodes_in_mean"] >= 100
    for mean in (summary["return_mean_100"], summary["best_return"]):
        assert -80 - 3 * 75 / 10 < mean < -80 + 3 * 75 / 10
    assert summary["episode_length_mean"] == -summary["return_mean_100"]


@pytest.mark.parametrize(("bound", "groups"), [(100, 2), (3000, 1)])
def test_a_run_ends_within_one_unroll_of_each_environment_of_its_bound(
    start, bound: int, groups: int
) -> None:
    actors = {"actors": {"processes": 2, "groups": groups, "envs_per_group": 8, "unroll_length": 5}}
    summary = finished(start(run={"max_env_steps": bound}, **_LARGE | actors))
    assert summary["reason"] == "max_env_steps"
    assert bound <= summary["env_steps"] <= bound + 2 * groups * 8 * 5


def test_figures_of_info_are_in_the_lines_and_bad_ones_are_counted(start) -> None:
    env = {"id": "tests.support.space_envs:Won", "info_metrics": ["success", "episode", "word"]}
    evaluator = {"every_steps": 300, "episodes": 4}
    run = start(run={"max_env_steps": 1500}, env=env, evaluator=evaluator, **_LARGE)
    summary = finished(run)
    assert 0.2 < summary["info_success"] < 0.8
    assert (summary["info_episode_l"], summary["episode_length_mean"]) == (8.0, 8.0)
    assert summary["info_episode_r"] == summary["return_mean_100"]
    assert max(line.get("actor_refused_info", 0) for line in run.lines()) > 10
    assert summary["evaluator_info_episode_r"] == summary["evaluator_return_mean"]
    assert "info_word" not in summary
