"""Whole runs whose batches are recorded, and repeated from the folder alone."""

from __future__ import annotations

from typing import Any

import pytest

from aclearn.control import Directive, SetEntropyCost, SetLearningRate
from aclearn.runs import RunFolder
from services.monitor.directive_channel import USER, USER_RANK
from services.trainer.repeat import recorded_policies, repeat
from tests.support.whole_run import WholeRun

_PENDULUM: dict[str, Any] = {
    "env": {"id": "Pendulum-v1", "squash_actions": True},
    "replay": {"start": 32, "batch": 16},
}
_CASES: dict[str, dict[str, Any]] = {
    "dqn, prioritised": {
        "loss": {"kind": "dqn", "target_update_every": 3},
        "replay": {"start": 32, "batch": 8, "prioritised": True},
    },
    "sac": {
        **_PENDULUM,
        "loss": {"kind": "sac"},
        "policy": {"architecture": "mlp", "hidden": [8], "std_from_observations": True},
    },
    "ddpg": {**_PENDULUM, "loss": {"kind": "ddpg", "memory": "replay", "noise_std": 0.5}},
    "two policies": {
        "env": {"id": "tests.support.agents_env:Uneven"},
        "trainer": {"minibatches": 1, "epochs": 2},
        "policies": {
            "slow": {"agents": "long", "policy": {"memory": {"kind": "lstm", "size": 4}}},
            "fast": {"agents": "sh*", "loss": {"kind": "ppo"}},
        },
    },
}
_RESIDENT: dict[str, dict[str, Any]] = {
    "resident": {
        "resident": {"envs": 16, "device": "cpu"},
        "actors": {"envs_per_group": 16, "unroll_length": 8},
        "trainer": {"device": "cpu", "amp": "off", "minibatches": 2, "epochs": 2},
        "loss": {"kind": "ppo"},
    },
    "resident hddpg": {
        "env": {"id": "Pendulum-v1", "squash_actions": True},
        "resident": {"envs": 16, "device": "cpu"},
        "actors": {"envs_per_group": 16, "unroll_length": 10},
        "trainer": {"device": "cpu", "amp": "off", "minibatches": 2, "epochs": 2},
        "loss": {"kind": "ddpg", "buffer_unrolls": 3},
    },
}


def check_repeated(run: WholeRun) -> None:
    run.run()
    folder = RunFolder.open(run.path)
    for policy in recorded_policies(folder):
        made = repeat(folder, policy)
        assert made.batches >= 4 and made.updates > 0
        assert len(made.comparisons) >= 2 and all(each.equal for each in made.comparisons)
        assert made.exact and made.doubts == []


@pytest.mark.parametrize("name", _CASES)
def test_what_was_sampled_is_repeated_with_the_bits_of_the_run(name, start) -> None:
    check_repeated(start(run={"max_updates": 23, "flight_recorder": 4}, **_CASES[name]))


@pytest.mark.parametrize("name", _RESIDENT)
def test_batches_of_resident_environments_are_repeated(name, start) -> None:
    pytest.importorskip("warp")
    check_repeated(start(run={"max_updates": 23, "flight_recorder": 4}, **_RESIDENT[name]))


def test_what_a_user_has_set_is_repeated_too(start) -> None:
    run = start(run={"max_updates": 23, "flight_recorder": 4})
    run.run_until(
        lambda: run.roles["trainer-0"]._trainer.counters.updates >= 12, "half of the updates"
    )
    for payload in (SetLearningRate(0.125), SetEntropyCost(0.5)):
        run.monitor.state._channel.issue(Directive("trainer-0", payload), by=USER, rank=USER_RANK)
    check_repeated(run)
    assert run.lines()[-1]["learning_rate"] == 0.125
