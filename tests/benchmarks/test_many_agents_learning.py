"""benchmarks/many_agents_learning.py: figures of games whose course is known, and its tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aclearn.resident")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import many_agents_curves as curves
import many_agents_learning as learning

from aclearn.resident.environments.covid_rules import calibration


def test_time_in_the_game_ends_where_a_runner_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "TAG_GAMES", 3)
    rules = {"num_taggers": 2, "grid_length": 4, "episode_length": 9, "wall_hit_penalty": 0.5}

    def chases(observations: Any) -> Any:
        # from the middle (2, 2) to the runner in the corner: two steps left, two down
        time = np.rint(9 * np.asarray(observations)[..., -1]).astype(int)
        return np.where(time < 2, 2, 4)

    def stays(observations: Any) -> Any:
        return np.zeros(observations.shape[:2], int)

    caught = learning.tag_games("tag_gridworld", rules, chases, stays)
    assert (caught["caught"], caught["time_in_game"]) == (1.0, 4.0)
    assert caught["tagger_return"] == pytest.approx(10.0 - 3 * 0.01)
    free = learning.tag_games("tag_gridworld", rules, stays, stays)
    assert (free["caught"], free["time_in_game"]) == (0.0, 9.0)
    assert free["runner_return"] == pytest.approx(9 * 0.01)


def test_the_planners_two_indices_make_its_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "COVID_GAMES", 2)
    days = 40

    def closes(observations: Any, masks: Any) -> Any:
        return np.where(np.asarray(masks)[..., 9], 9, 0)

    def pays(observations: Any, masks: Any) -> Any:
        return np.where(np.asarray(masks)[..., 7], 7, 0)

    found = learning.covid_game({"episode_length": days}, closes, pays)
    odds = 0.45 * calibration().health_weights[-1] / (1 - calibration().health_weights[-1])
    both = (odds * found["health"] + found["economy"]) / (1 + odds)
    assert found["planner_return"] == pytest.approx(days * both, rel=1e-5)
    a_year = calibration().population.sum() * 20_000 * 7 / 20
    assert found["subsidies"] == pytest.approx(a_year * days / 365)


def test_a_table_goes_on_where_it_was_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    def run_training(training: Any, seed: int, out: Path) -> Path:
        trained.append((training.name, seed))
        return out

    def rows(training: Any, folder: Path) -> Iterator[dict[str, Any]]:
        yield {"env_steps": 5, "percent": 0, "health": 0.25}

    def trainings() -> Iterator[learning.Training]:
        yield learning.Training("one", "", ())
        yield learning.Training("two", "", ())

    monkeypatch.setattr(learning, "run_training", run_training)
    monkeypatch.setitem(learning.PARTS, "covid", (trainings, rows))
    table = tmp_path / "table.csv"
    begin = ["covid", "--out", str(tmp_path), "--csv", str(table)]
    learning.main([*begin, "--seeds", "4", "--only", "one"])
    with pytest.raises(SystemExit, match="--resume"):
        learning.main([*begin, "--seeds", "4"])
    learning.main([*begin, "--seeds", "4", "5", "--resume"])
    assert trained == [("one", 4), ("two", 4), ("one", 5), ("two", 5)]
    assert [(row["run"], row["seed"], row["health"]) for row in curves.read(table)] == [
        (name, str(seed), "0.25") for name, seed in trained
    ]


def test_a_table_has_the_first_and_the_last_point_of_all_seeds() -> None:
    rows = [
        {"run": "a", "seed": seed, "percent": percent, "env_steps": steps, "caught": caught}
        for seed, percent, steps, caught in (
            ("1", "0", "0", "0.25"),
            ("1", "45", "900000", "0.3"),
            ("1", "100", "2000000", "0.5"),
            ("2", "0", "0", "0.35"),
            ("2", "100", "2000000", "0.75"),
        )
    ]
    *_, line = curves.table_lines(rows)
    assert line == "| a | 2 | 2.0 M | 0.30 → 0.62 (0.50 to 0.75) |"
