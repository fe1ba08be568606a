"""A whole run of several policies whose trainer steps the worlds itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclearn.config import EnvConfig
from aclearn.envs import make_policy_envs
from aclearn.errors import ConfigError
from aclearn.types import OBSERVATION
from tests.support.metrics_lines import check_line, check_lines
from tests.support.whole_run import WholeRun

pytest.importorskip("warp")

_POLICIES: dict[str, Any] = {
    "flock": {"agents": "sheep_*", "policy": {"memory": {"kind": "lstm", "size": 4}}},
    "dog": {"agents": "dog*", "loss": {"kind": "ppo"}},
}
_HERD: dict[str, Any] = {
    "env": {"id": "resident:tests.support.herd:HERD"},
    "resident": {"envs": 12, "device": "cpu"},
    "actors": {"envs_per_group": 16, "unroll_length": 5},
    "trainer": {"device": "cpu", "amp": "off"},
    "policies": _POLICIES,
}


def tensors_of(run: WholeRun) -> dict[str, np.ndarray]:
    return run.checkpoint().tensors


def test_a_resumed_run_of_two_policies_ends_with_the_bits_of_an_unbroken_one(
    tmp_path: Path,
) -> None:
    whole = WholeRun(tmp_path / "whole", **_HERD, run={"max_updates": 24})
    assert set(whole.roles) == {"monitor-0", "trainer-0"}
    begun = tensors_of(whole)
    summary = whole.run()
    check_line(summary)
    check_lines(whole.lines())
    parts = whole.checkpoint().state["policies"]
    for name, part in parts.items():
        account = part["account"]
        assert part["counters"]["updates"] == 24 and account["in_flight_steps"] == 0
        dropped = sum(account["dropped_steps"].values())
        assert account["env_steps"] == account["learned_steps"] + dropped
        assert summary["policies"][name]["episodes"] > 20
        assert summary["policies"][name]["return_mean_100"] is not None
        key = f"policy/{name}/weights/policy{'_mean' if name == 'dog' else ''}.weight"
        assert not np.array_equal(begun[key], tensors_of(whole)[key])
    # three sheep for each dog, which is in the game as long as one of them
    assert parts["flock"]["account"]["env_steps"] > parts["dog"]["account"]["env_steps"]
    assert "policy/flock/memory/flock/0" in tensors_of(whole) or (
        "policy/dog/memory/flock/0" in tensors_of(whole)
    )

    broken = tmp_path / "broken"
    WholeRun(broken, **_HERD, run={"max_updates": 12}).run()
    resumed = WholeRun(broken, resume=True, **_HERD, run={"max_updates": 24})
    assert resumed.run()["generation"] == 1
    resumed.assert_same_checkpoint(whole)


def test_a_fixed_policy_plays_and_neither_learns_nor_counts(tmp_path: Path) -> None:
    fixed = {**_POLICIES, "dog": {"agents": "dog*", "learns": False}}
    run = WholeRun(tmp_path, **{**_HERD, "policies": fixed}, run={"max_updates": 6})
    begun = tensors_of(run)
    summary = run.run()
    for name, tensor in tensors_of(run).items():
        if name.startswith("policy/dog/weights/"):
            np.testing.assert_array_equal(tensor, begun[name])
    parts = run.checkpoint().state["policies"]
    assert parts["dog"]["account"]["env_steps"] == 0
    assert summary["accounted_env_steps"] == parts["flock"]["account"]["env_steps"] > 0
    assert summary["policies"]["dog"]["episodes"] > 0


def test_a_replay_memory_and_a_stream_learn_in_the_same_rounds(tmp_path: Path) -> None:
    sac = {"kind": "sac"}
    policies = {"flock": {"agents": "sheep_*"}, "dog": {"agents": "dog", "loss": sac}}
    replay = {"size": 4096, "start": 100, "batch": 16, "ratio": 0.5}
    run = WholeRun(
        tmp_path, **{**_HERD, "policies": policies, "replay": replay}, run={"max_updates": 12}
    )
    run.run()
    counters = {n: p["counters"] for n, p in run.checkpoint().state["policies"].items()}
    assert {each["updates"] for each in counters.values()} == {12}


def test_explorations_by_noise_and_several_kinds_of_agents_are_refused_by_name(
    tmp_path: Path,
) -> None:
    noisy = {**_POLICIES, "dog": {"agents": "dog", "loss": {"kind": "ddpg"}}}
    with pytest.raises(ConfigError, match=r"policies\.dog\.loss\.kind: ddpg explores by noise"):
        WholeRun(tmp_path, **{**_HERD, "policies": noisy})
    with pytest.raises(ConfigError, match="policies.* has one agent"):
        WholeRun(
            tmp_path / "one",
            **{**_HERD, "env": {"id": "resident:CartPole"}, "policies": {"a": {"agents": "*"}}},
        )


def test_actors_play_worlds_by_policy_as_one_group() -> None:
    patterns = {name: (own["agents"],) for name, own in _POLICIES.items()}
    parts = make_policy_envs(
        EnvConfig(**_HERD["env"]), patterns, num_envs=2, seed=3, step_timeout_s=20.0, max_faults=0
    )
    first = {name: part.reset(3)[OBSERVATION] for name, part in parts.items()}
    assert {name: shown.shape[0] for name, shown in first.items()} == {"flock": 6, "dog": 2}
    for _ in range(3):
        parts["flock"].send(np.full(6, 2, np.int32))
        with pytest.raises(RuntimeError, match="every policy"):
            parts["flock"].recv()
        parts["dog"].send(np.zeros((2, 2), np.float32))
        steps = {name: part.recv() for name, part in parts.items()}
        valid = ~steps["flock"].reset
        # each sheep has moved a quarter to the right
        moved = steps["flock"].observations[OBSERVATION][:, 0] - first["flock"][:, 0]
        np.testing.assert_allclose(moved[valid], 0.25, atol=1e-6)
        first = {name: step.observations[OBSERVATION] for name, step in steps.items()}
    next(iter(parts.values())).close()
