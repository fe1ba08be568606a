from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import populations

from aclearn.config import load_config


@pytest.mark.parametrize("task", populations.TASKS)
def test_all_selectors_have_equal_total_steps(task: str) -> None:
    totals = set()
    for selector in populations.SELECTORS:
        name, keys = populations.settings(task, selector, 2)
        config = load_config(name, keys)
        assert config.population.selector.name == selector
        assert config.run.target_return == populations.GOALS.get(task)
        assert config.run.stop_at_target
        assert config.population.members is not None
        totals.add((config.population.members, config.population.rounds, config.population.seed))
    assert len(totals) == 1


def test_a_row_of_the_summary_has_a_value_for_each_seed() -> None:
    rows = [
        {
            **{"task": "cartpole", "selector": "pbt", "seed": seed, "test": ""},
            **{"env_steps": str(1_000_000 * round_), "fitness": fitness, "best_fitness": best},
        }
        for seed, curve in (("1", [(9, 9), (480, 480), (470, 480)]), ("2", [(9, 9), (7, 9)]))
        for round_, (fitness, best) in enumerate(curve, 1)
    ]
    [_, row] = populations.summary(rows)  # type: ignore[arg-type]
    assert row == ["cartpole", "pbt", "480, 9", "470, 7", "2.0, –", ""]
