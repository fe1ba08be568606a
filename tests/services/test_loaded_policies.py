"""Policies that act where their environment is not, in Python and as ONNX models."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

import aclearn
from aclearn.errors import ArgumentError, EnvironmentFailure
from aclearn.policies.network import PolicyNetwork, load_tensors
from services.evaluator.saved_policy import load_policy
from tests.support.saved_runs import save_run
from tests.support.space_envs import Gates, Locks, Match, Reach, Senses, Switches
from tests.support.waiting import run_python

_EXAMPLE = Path(__file__).parents[2] / "examples" / "play_onnx.py"
_ENVS = "tests.support.space_envs"


class Painter(gymnasium.Env[Any, Any]):
    """Pictures of which four are stacked; the action is a brush stroke in double precision."""

    observation_space = spaces.Box(0, 255, (12, 12, 3), np.uint8)
    action_space = spaces.Box(np.array([-1.0, 0.0]), np.array([3.0, 0.5]), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.integers(0, 256, (12, 12, 3), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.steps += 1
        seen = self.np_random.integers(0, 256, (12, 12, 3), np.uint8)
        return seen, float(action[0]), self.steps == 6, False, {}


_KINDS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "Discrete": (lambda: gymnasium.make("CartPole-v1"), {"id": "CartPole-v1"}),
    "MultiDiscrete": (Match, {"id": f"{_ENVS}:Match"}),
    "MultiBinary": (Switches, {"id": f"{_ENVS}:Switches"}),
    "Box": (lambda: gymnasium.make("Pendulum-v1"), {"id": "Pendulum-v1"}),
    "Box, squashed": (
        lambda: gymnasium.make("Pendulum-v1"),
        {"id": "Pendulum-v1", "squash_actions": True},
    ),
    "Dict of actions": (Reach, {"id": f"{_ENVS}:Reach"}),
    "Dict of observations": (Senses, {"id": f"{_ENVS}:Senses", "ignore": ["note"]}),
    "stack of pictures": (Painter, {"id": f"{__name__}:Painter", "frame_stack": 4}),
    "masks": (Gates, {"id": f"{_ENVS}:Gates", "action_mask": "info"}),
    "masks, choice by choice": (Locks, {"id": f"{_ENVS}:Locks", "action_mask": "info"}),
}


@pytest.mark.parametrize("memory", [None, "lstm", "own"])
@pytest.mark.parametrize("kind", _KINDS)
def test_a_model_plays_without_ours_as_the_policy_does(
    kind: str, memory: str | None, tmp_path: Path
) -> None:
    make, env_config = _KINDS[kind]
    network = {"architecture": "minigrid"} if kind == "stack of pictures" else {}
    if memory == "own":
        network = {"architecture": "tests.support.own_networks:Remembers", "hidden": None}
    elif memory:
        network |= {"memory": {"kind": memory, "size": 6}}
    network["normalise_observations"] = kind == "Box"
    run = save_run(tmp_path, env_config, policy=network)
    model = tmp_path / "policy.onnx"
    aclearn.export(run, model)
    policy, env = aclearn.load(run), make()
    alone = runpy.run_path(str(_EXAMPLE))["OnnxPolicy"](str(model))
    stack = env_config.get("frame_stack", 1)
    for seed in (1, 2):
        alone.begin()
        policy.reset()
        observation, info = env.reset(seed=seed)
        frames = [observation] * stack
        for _ in range(5):
            action = alone.act(observation, info.get("action_mask"))
            seen = np.stack(frames) if stack > 1 else observation
            expected = policy.act(seen, greedy=True, mask=info.get("action_mask"))
            assert env.action_space.contains(action)
            _assert_same(action, expected)
            observation, *_, info = env.step(action)
            frames = [*frames[1:], observation]


def _assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, part in expected.items():
            _assert_same(found[name], part)
        return
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found.dtype == expected.dtype and found.shape == expected.shape


def test_the_example_imports_nothing_of_ours(tmp_path: Path) -> None:
    model = tmp_path / "policy.onnx"
    aclearn.export(save_run(tmp_path, {"id": "CartPole-v1"}), model)
    blocked = "import sys, runpy; sys.path.pop(0); sys.argv = sys.argv[1:]\n" + "\n".join(
        f"sys.modules[{name!r}] = None"
        for name in ("aclearn", "compress", "correctors", "services", "torch", "onnx")
    )
    played = f"{blocked}\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    done = run_python("-c", played, _EXAMPLE, model, "CartPole-v1")
    assert done.stdout.startswith("return "), done.stderr


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose environment's module is not there any more."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "far_env.py").write_text(f"from {_ENVS} import Senses as Far\n")
    with monkeypatch.context() as there:
        there.syspath_prepend(home)
        run = save_run(tmp_path, {"id": "far_env:Far", "ignore": ["note"]})
    del sys.modules["far_env"]
    return run


def test_a_policy_is_loaded_where_its_environment_is_not(far: Path) -> None:
    policy = aclearn.load(far, seed=1)
    space = spaces.Dict({k: v for k, v in Senses.observation_space.items() if k != "note"})
    space.seed(0)
    seen = [space.sample() for _ in range(3)]
    singles = [policy.act(observation, greedy=True) for observation in seen]
    batch = concatenate(space, seen, create_empty_array(space, 3))
    actions = policy.act(batch, greedy=True)
    np.testing.assert_array_equal(actions, singles)
    assert policy.action_space == Senses.action_space
    probabilities = policy.probabilities(batch)
    assert [p.shape for p in probabilities] == [(3, 3), (3, 2), (3, 2)]
    np.testing.assert_array_equal([p.argmax(1) for p in probabilities], actions.T)
    np.testing.assert_allclose([p.sum(1) for p in probabilities], 1.0, rtol=1e-5)
    with pytest.raises(ArgumentError, match="expected Dict"):
        policy.act({"balance": np.zeros(2, np.float32)})
    with pytest.raises(EnvironmentFailure, match="far_env"):
        aclearn.open_run(far).evaluate(1)


def test_a_policy_is_exported_where_its_environment_is_not(far: Path, tmp_path: Path) -> None:
    model = tmp_path / "far.onnx"
    artifact = aclearn.export(far, model)
    assert artifact.fidelity.agreement == 1.0 and artifact.fidelity.observations > 100
    act = runpy.run_path(str(_EXAMPLE))["OnnxPolicy"](str(model)).act
    policy, space = aclearn.load(far), Senses.observation_space
    for _ in range(3):
        seen = space.sample()
        _assert_same(act(seen), policy.act(seen, greedy=True))
    with pytest.raises(EnvironmentFailure, match=r"chain: int8.* leave chain out .*far_env"):
        aclearn.export(far, tmp_path / "small.onnx", chain="int8")


def test_means_deviations_and_values_have_names(tmp_path: Path) -> None:
    run = save_run(tmp_path, {"id": "Pendulum-v1"}, policy={"initial_std": 0.5})
    policy, saved = aclearn.load(run), load_policy(run)
    observations = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    network = PolicyNetwork(saved.architecture)
    load_tensors(network, saved.tensors)
    with torch.inference_mode():
        parameters, values = network(torch.from_numpy(observations))
    named = policy.parameters(observations)
    np.testing.assert_allclose(named["mean"], parameters[:, :1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(named["std"], 0.5, rtol=1e-5)
    assert policy.parameters(observations[0])["mean"].shape == (1,)
    np.testing.assert_allclose(policy.value(observations), values, rtol=1e-4, atol=1e-5)
    assert policy.value(observations[0]) == pytest.approx(float(values[0]), rel=1e-4, abs=1e-5)
    with pytest.raises(ArgumentError, match="have no probabilities; `parameters` gives"):
        policy.probabilities(observations)


def test_the_value_of_action_values_is_their_mean_over_the_policy(tmp_path: Path) -> None:
    run = save_run(
        tmp_path,
        {"id": "CartPole-v1"},
        policy={"critic": "q"},
        correctors=["retrace", "importance_sampling"],
    )
    policy, saved = aclearn.load(run), load_policy(run)
    network = PolicyNetwork(saved.architecture)
    load_tensors(network, saved.tensors)
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    q = network(torch.from_numpy(observations))[1].detach().numpy()
    expected = (policy.probabilities(observations) * q).sum(1)
    np.testing.assert_allclose(policy.value(observations), expected, rtol=1e-4, atol=1e-5)


def test_the_value_of_a_critic_of_scaled_rewards_is_in_units_of_rewards(tmp_path: Path) -> None:
    env = {"id": "Pendulum-v1", "squash_actions": True}
    kind = {"kind": "ddpg", "memory": "replay"}
    observation = np.array([0.6, 0.8, -0.5], np.float32)
    plain, scaled = (
        aclearn.load(save_run(tmp_path / str(scale), env, loss={**kind, **given}))
        for scale, given in ((1.0, {}), (0.02, {"reward_scale": 0.02}))
    )
    assert scaled.value(observation) == pytest.approx(50 * plain.value(observation), rel=1e-5)


def test_an_ensemble_without_values_of_states_says_so(tmp_path: Path) -> None:
    runs = [
        save_run(tmp_path / str(n), {"id": "CartPole-v1"}, run={"seed": n}, loss={"kind": "dqn"})
        for n in range(2)
    ]
    together = aclearn.load(aclearn.ensemble(runs, tmp_path / "all"))
    with pytest.raises(ArgumentError, match=r"critics of states \(V\), and not all"):
        together.value(np.zeros(4, np.float32))


def test_an_environment_with_other_spaces_than_the_policys_is_not_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = save_run(tmp_path, {"id": f"{_ENVS}:Match"})
    monkeypatch.setattr(Match, "action_space", spaces.MultiDiscrete([3, 3]))
    with pytest.raises(EnvironmentFailure, match="choices of 3, 3, and the policy was trained on"):
        aclearn.open_run(run).evaluate(1)
