"""Whole runs of DQN on a replay memory: the account, a resume, a kill, predictors, resident."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aclearn
from services.evaluator.evaluate import evaluate
from services.roles import TRAINER

_DQN: dict[str, Any] = {
    "loss": {"kind": "dqn", "target_update_every": 10, "epsilon_steps": 50},
    "actors": {"unroll_length": 8},
    "trainer": {"unrolls_per_batch": 1},
    "replay": {
        "size": 160, "start": 64, "batch": 8, "ratio": 0.7, "n_steps": 3, "prioritised": True
    },
}  # fmt: skip


def accounted(summary: dict[str, Any]) -> bool:
    return summary["env_steps"] == summary["learned_steps"] + sum(summary["dropped_steps"].values())


@pytest.mark.parametrize("inference", ["local", "predictor"])
def test_each_step_is_learned_once_or_dropped(start, inference: str) -> None:
    actors = _DQN["actors"] | {"inference": inference}
    run = start(**_DQN | {"actors": actors}, run={"max_updates": 40})
    summary = run.run()  # which checks the account of each round
    assert summary["updates"] == 40 and accounted(summary)
    assert set(summary["dropped_steps"]) <= {"never_drawn", "shutdown", "max_updates", "actor_lost"}
    assert summary["dropped_steps"]["never_drawn"] > 0
    drawn = 40 * 8
    assert summary["learned_steps"] < drawn <= 0.7 * summary["env_steps"]
    [*_, line] = run.lines()
    assert line["replay_ratio"] == pytest.approx(0.7, abs=0.1)
    assert 100 < line["replay_steps"] <= 160
    assert line["value_loss"] > 0.0

    # its policy plays the best action, also where it is not asked to be greedy
    sampled, greedy = (evaluate(run.path, episodes=1, greedy=greedy) for greedy in (False, True))
    assert sampled.returns == greedy.returns
    policy = aclearn.load(run.path)
    seen = np.zeros((2, 4), np.float32)
    assert sorted(policy.probabilities(seen)[0]) == [0.0, 1.0]
    assert policy.value(seen).shape == (2,)


def test_a_killed_trainer_goes_on_with_the_memory_of_its_checkpoint(start) -> None:
    run = start(**_DQN, run={"max_updates": 60, "checkpoint_every_s": 1.0})
    trainer = run.roles["trainer-0"]
    run.run_until(lambda: trainer._trainer.counters.updates >= 30, "30 updates")
    run.kill("trainer-0")
    run.start(TRAINER)
    summary = run.run()
    assert summary["updates"] == 60 and summary["generation"] == 1 and accounted(summary)
    assert summary["dropped_steps"]["trainer_restart"] > 0
    with_memory = [line["replay_steps"] for line in run.lines() if line["generation"] == 1]
    assert min(with_memory) > 64
