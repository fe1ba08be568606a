"""The public Python API, as `import aclearn` forwards it."""

from __future__ import annotations

from pathlib import Path

import pytest

import aclearn
from services import api
from tests.support.waiting import run_python


def test_a_run_is_trained_and_evaluated_from_python(tmp_path: Path) -> None:
    given = [f"run.dir={tmp_path}", "run.name=r", "run.max_updates=20", "run.deterministic=true"]
    config = aclearn.load_config("cartpole", [*given, "actors.processes=1"])

    summary = aclearn.train(config)

    assert (summary["updates"], summary["reason"]) == (20, "max_updates")
    # 20 updates of one pass each over 16 unrolls of 5 steps of 8 environments
    trainer, actors = config.trainer, config.actors
    steps = trainer.unrolls_per_batch * actors.unroll_length * actors.envs_per_group
    batches = 20 / (trainer.minibatches * trainer.epochs)
    assert 0 < summary["learned_steps"] <= batches * steps
    played = aclearn.evaluate(tmp_path / "r", episodes=2, greedy=True, best=False, seed=1)
    assert len(played.returns) == 2 and min(played.returns) >= 8  # no pole falls sooner


def test_a_name_that_the_api_has_not_is_an_attribute_error_and_costs_no_import() -> None:
    assert tuple(api.__all__) == aclearn._API
    with pytest.raises(AttributeError, match="module 'aclearn' has no attribute 'trains'"):
        aclearn.trains  # noqa: B018
    look = "import sys, aclearn; from aclearn import types; print('services' in sys.modules)"
    done = run_python("-c", look)
    assert done.stdout == "False\n"
