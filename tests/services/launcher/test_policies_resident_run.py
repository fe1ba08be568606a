"""A whole run of several policies whose trainer steps the worlds itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from aclearn.config import config_from_yaml
from aclearn.errors import ConfigError
from tests.support.metrics_lines import check_line, check_lines
from tests.support.whole_run import WholeRun

pytest.importorskip("warp")
from aclearn.resident.joint_source import JointPlay
from aclearn.resident.policy_rows import PolicyRows

_POLICIES: dict[str, Any] = {
    "flock": {"agents": "sheep_*", "policy": {"memory": {"kind": "lstm", "size": 4}}},
    "dog": {"agents": "rex", "loss": {"kind": "ppo"}},
}
_HERD: dict[str, Any] = {
    "env": {"id": "resident:tests.support.herd:HERD"},
    "resident": {"envs": 12, "device": "cpu"},
    "actors": {"envs_per_group": 16, "unroll_length": 5},
    "trainer": {"device": "cpu", "amp": "off", "epochs": 1, "minibatches": 1},
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
    fixed = {**_POLICIES, "dog": {"agents": "rex", "learns": False}}
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
    policies = {
        "flock": {"agents": "sheep_*"},  # its loss and memory are the run's
        "dog": {"agents": "rex", "loss": {"kind": "ppo"}},
    }
    changes = {
        "policies": policies,
        "loss": {"kind": "dqn"},
        "replay": {"size": 4096, "start": 200, "batch": 16, "ratio": 0.5},
    }
    run = WholeRun(tmp_path, **{**_HERD, **changes}, run={"max_updates": 12})
    refused: list[int] = []
    _after_each_rollout(
        run, lambda play: refused.append(int(_is_allowed(play.rows["flock"]).logical_not().sum()))
    )
    run.run()
    assert len(refused) > 3 and not any(refused)
    parts = run.checkpoint().state["policies"]
    assert {part["counters"]["updates"] for part in parts.values()} == {12}
    # the memory waits for its first steps while the other policy learns
    assert parts["flock"]["account"]["env_steps"] > 200


def _after_each_rollout(run: WholeRun, look: Callable[[JointPlay], None]) -> None:
    play = run.roles["trainer-0"]._trainer.by_policy["dog"].source._play
    played = play._rollout.run

    def run_and_look(*given: Any) -> None:
        played(*given)
        look(play)

    play._rollout.run = run_and_look


def _is_allowed(rows: PolicyRows) -> torch.Tensor:
    """Whether each action is one that its mask allows, of agents in the game."""
    b = rows.kind.buffers
    allowed = b.masks[:-1].gather(2, b.actions.unsqueeze(-1)).squeeze(-1)
    return rows.of_steps(allowed | ~b.valid)


def test_a_fixed_policy_of_action_values_takes_its_best_action_in_every_step(
    tmp_path: Path,
) -> None:
    changes = {
        "policies": {
            "flock": {"agents": "sheep_0"},
            "fixed": {"agents": ["sheep_1", "sheep_2"], "learns": False},
            "dog": {"agents": "rex", "loss": {"kind": "ppo"}},
        },
        "loss": {"kind": "dqn"},
        "replay": {"size": 4096, "start": 100, "batch": 16, "ratio": 0.5},
    }
    run = WholeRun(tmp_path, **{**_HERD, **changes}, run={"max_updates": 4})
    shares: list[float] = []

    def look(play: JointPlay) -> None:
        rows = play.rows["fixed"]
        b, network = rows.kind.buffers, play._acting["fixed"].acting.network
        values = network.outputs(rows.of_steps(b.observations)[:-1].flatten(0, 1))["policy"]
        allowed = rows.of_steps(b.masks)[:-1].flatten(0, 1)
        best = values.masked_fill(~allowed, -torch.inf).argmax(1)
        actions, valid = (rows.of_steps(each).flatten() for each in (b.actions, b.valid))
        shares.append(float((best == actions)[valid].float().mean()))

    _after_each_rollout(run, look)
    run.run()
    assert len(shares) > 3 and min(shares) == 1.0


def test_what_cannot_play_in_worlds_is_refused_by_name(tmp_path: Path) -> None:
    run = WholeRun(tmp_path, **_HERD, run={"max_updates": 1})
    config = config_from_yaml((run.path / "config.yaml").read_text())
    given = {"device": torch.device("cpu"), "incarnation": "x", "seed": 1}
    noisy: Any = SimpleNamespace(loss=SimpleNamespace(acting="noise", kind="ddpg"))
    with pytest.raises(ConfigError, match=r"policies\.dog\.loss\.kind: ddpg explores by noise"):
        JointPlay(config, run.spec, **given).join("dog", noisy, None, None, None, learns=True)
    chain = config.resident.model_copy(update={"chain": ({"prune": 0.5},)})
    with pytest.raises(ConfigError, match=r"resident\.chain: several policies"):
        JointPlay(config.model_copy(update={"resident": chain}), run.spec, **given)
    run.run()
    with pytest.raises(ConfigError, match=r"policies: .* has one agent"):
        WholeRun(
            tmp_path / "one",
            **{**_HERD, "env": {"id": "resident:CartPole"}, "policies": {"a": {"agents": "*"}}},
        )
