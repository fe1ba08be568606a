"""An environment of several agents is learned by one policy and evaluated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aclearn.config import Config
from aclearn.errors import ConfigError
from services.evaluator.evaluate import evaluate
from services.start.preflight import check_policy
from tests.support.agents_env import Pairs
from tests.support.env_specs import plain_spec
from tests.support.whole_run import WholeRun


@pytest.mark.parametrize("inference", ["local", "predictor"])
def test_most_of_the_best_return_is_learned_for_all_agents(tmp_path: Path, inference: str) -> None:
    run = WholeRun(
        tmp_path,
        env={"id": "tests.support.agents_env:Pairs"},
        policy={"hidden": [32]},
        optimiser={"learning_rate": 0.02},
        loss={"entropy_cost": 0.0},
        actors={"processes": 1, "envs_per_group": 4, "unroll_length": 8, "inference": inference},
        run={"max_updates": 400, "target_return": 0.75 * Pairs.best},
    )
    run.run(most_rounds=40_000)
    assert not run.refused
    assert run.heartbeats["actor-0"].gauges["env_faults"] == 0.0
    found = run.summary()
    assert found["reached_target_at_s"] is not None, found
    if inference == "local":
        score = evaluate(run.path, episodes=9, greedy=True)
        assert sorted(score.lengths) == [4] * 9 + [8] * 9
        assert score.mean >= 0.75 * Pairs.best


def test_a_predictor_that_does_not_hold_all_agents_of_a_group_is_refused() -> None:
    groups: dict[str, Any] = {
        "env": {"id": "tests.support.agents_env:Pairs"},
        "policy": {"architecture": "mlp"},
        "actors": {"inference": "predictor", "envs_per_group": 3},
        "predictor": {"max_batch": 5},
    }
    spec = replace(plain_spec((3,), "float32", 3), agents=2)
    with pytest.raises(ConfigError, match=r"max_batch: 5 .* 3 environments of 2 agents.* to 6"):
        check_policy(Config.model_validate(groups), spec)
    groups["predictor"]["max_batch"] = 6
    check_policy(Config.model_validate(groups), spec)
