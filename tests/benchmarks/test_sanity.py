"""The environments on which defaults are judged, and the arithmetic of the judgement."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import sanity
import sanity_envs


@pytest.mark.parametrize("name", sanity_envs.CASES)
def test_an_environment_keeps_its_spaces_repeats_by_its_seed_and_is_not_solved_by_chance(
    name: str,
) -> None:
    case = sanity_envs.CASES[name]

    def episodes(seed: int, count: int) -> list[float]:
        env = sanity_envs.make(name)
        env.action_space.seed(seed)
        returns = []
        for episode in range(count):
            observation, _ = env.reset(seed=seed if episode == 0 else None)
            total, steps, ended = 0.0, 0, False
            while not ended:
                assert env.observation_space.contains(observation)
                observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
                total, steps = total + reward, steps + 1
                ended = terminated or truncated
                assert type(reward) is float and type(terminated) is bool
            assert steps <= case.make.most
            returns.append(total)
        return returns

    assert episodes(3, 2) == episodes(3, 2)
    assert np.mean(episodes(1, 40)) < case.solved
    assert case.steps <= 200_000


def test_there_are_25_of_which_those_that_need_more_are_named() -> None:
    assert len(sanity_envs.CASES) == 25
    needs = {name: case.needs for name, case in sanity_envs.CASES.items() if case.needs}
    assert needs == {
        "recall": "memory",
        "deep_sea": "exploration",
        "far_goal": "a sparse goal",
    }


def test_medians_of_seeds_are_compared_and_what_was_not_solved_is_infinite() -> None:
    def rows(case: str, *steps: int | str) -> list[dict[str, object]]:
        return [{"case": case, "solved_steps": each} for each in steps]

    assert sanity.verdict("far_goal", 1.0, 1.0) == "ok; needs a sparse goal"
    ours = [*rows("identity", 20_000, "", 45_000), *rows("grid", 10_000, "", ""), *rows("line", 1)]
    peers = [*rows("identity", 30_000, 31_000, 29_000), *rows("grid", 9_000), *rows("line", "", "")]

    lines = sanity.table([*ours, *rows("recall", "")], peers)

    assert lines[2:] == [
        "| identity | a choice seen, a choice taken | 45 k | 30 k | ok |",  # exactly 1.5 times
        "| line | a way to a place | 0 k | not in 50 k | no bar |",
        "| grid | 36 fields, short ways | not in 80 k | 9 k | SHORT: inf times |",
        "| recall | what was seen before | not in 20 k | not in 20 k | needs memory |",
    ]
    assert sanity.verdict("identity", 45_001.0, 30_000.0) == "SHORT: 1.50 times"
