"""The fitness of a member's newest policy."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclearn.launch import StopFlag
from aclearn.runs import load_newest, save_checkpoint
from services.population.fitness import NotFinite, fitness_of
from services.population.member import ROUND_FILE, judged
from tests.support.saved_runs import save_run


def _member(folder: Path, **evaluator: Any) -> Path:
    return save_run(
        folder,
        {"id": "CartPole-v1"},
        evaluator={"episodes": 4, **evaluator},
        population={"members": 2, "seed": 5},
    )


def test_it_is_the_mean_of_the_evaluators_own_environments(tmp_path: Path) -> None:
    folder = _member(tmp_path / "short", env={"id": "tests.support.evaluation_envs:Short"})
    found = fitness_of(folder, StopFlag())
    assert (found.mean, found.standard_error, found.env_steps) == (5.0, 0.0, 0)
    assert found.checkpoint == load_newest(folder / "checkpoints").path.stem


def test_the_same_policy_has_the_same_fitness_and_a_standard_error(tmp_path: Path) -> None:
    one, two = (fitness_of(_member(tmp_path / name), StopFlag()) for name in ("a", "b"))
    assert one == two and one.standard_error > 0.0


def test_weights_that_are_not_finite_have_none(tmp_path: Path) -> None:
    folder = _member(tmp_path)
    saved = load_newest(folder / "checkpoints")
    tensors = {
        name: np.full_like(each, np.nan) if name.startswith("weights/") else each
        for name, each in saved.tensors.items()
    }
    save_checkpoint(folder / "checkpoints", tensors=tensors, state=saved.state, label=1, keep=2)
    with pytest.raises(NotFinite, match="not finite"):
        fitness_of(folder, StopFlag())


def test_a_stop_ends_a_judgement_without_an_outcome(tmp_path: Path) -> None:
    folder, stop = _member(tmp_path, episodes=10_000), StopFlag()
    threading.Timer(0.3, lambda: stop.set("SIGTERM")).start()
    assert judged(folder, 0, 1, stop, lambda: None) is None
    assert not (folder / ROUND_FILE).exists()
