"""The plain A3C: its update against a slow one, and its processes."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from aclearn.algorithms.actor_critic import ActorCriticConfig
from aclearn.config import Config, load_config
from aclearn.envs import read_spec
from aclearn.learning.optimiser import RMSProp
from aclearn.policies.network import PolicyNetwork
from services.policy.factory import architecture_of

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import a3c

_TINY = ("env.id=CartPole-v1", "policy.architecture=mlp", "policy.hidden=[8]")


def _config(*overrides: str) -> Config:
    return load_config(a3c._CONFIG, [*_TINY, "env.clip_rewards=false", *overrides])


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("limit", [0.0, 0.05])
def test_an_update_is_that_of_each_step_alone_and_of_rmsprop(
    terminated: bool, limit: float
) -> None:
    config = _config(f"optimiser.max_grad_norm={limit}", "loss.entropy_cost=0.3")
    spec, costs = read_spec(config.env), config.loss
    assert isinstance(costs, ActorCriticConfig)
    shared = a3c.begin(config, spec, actors=1)
    network = PolicyNetwork(architecture_of(config, spec), seed=config.run.seed)
    parameters = list(network.parameters())
    torch.manual_seed(3)
    observations, actions = torch.randn(4, 4), torch.tensor([1, 0, 1])
    rewards = np.array([0.5, -2.0, 1.5], np.float32)

    with torch.no_grad():
        last = 0.0 if terminated else float(network(observations[3:])[1])
    total = torch.zeros(())
    for t in range(3):
        later = sum(costs.discount ** (i - t) * float(rewards[i]) for i in range(t, 3))
        target = later + costs.discount ** (3 - t) * last
        logits, value = network(observations[t : t + 1])
        chances = torch.exp(logits[0]) / torch.exp(logits[0]).sum()
        total = total - torch.log(chances[actions[t]]) * (target - float(value.detach()))
        total = total + costs.value_cost * (target - value[0]) ** 2 / 2
        total = total + costs.entropy_cost * (chances * torch.log(chances)).sum()
    expected = torch.autograd.grad(total / 3, parameters)
    norm = torch.cat([gradient.flatten() for gradient in expected]).norm()
    share = min(1.0, limit / float(norm)) if limit else 1.0
    assert not limit or share < 0.5  # the bound matters

    rollout = a3c.Rollout(observations, actions, rewards, terminated)
    found = torch.autograd.grad(a3c.loss_of(network, spec, costs, rollout), parameters)
    flat = parameters_to_vector(found)
    for _ in range(2):  # the second step has squares of its own
        a3c.step_weights(shared, flat, config.optimiser)
    chosen = config.optimiser
    slow = RMSProp(
        [{"params": parameters, "lr": chosen.learning_rate}],
        alpha=chosen.rmsprop_alpha,
        eps=chosen.epsilon,
        initial=chosen.rmsprop_initial,
    )
    for parameter, gradient in zip(parameters, expected, strict=True):
        parameter.grad = gradient * share
    slow.step()
    slow.step()
    after = parameters_to_vector(parameters).detach()
    begun = a3c.begin(config, spec, actors=1).weights
    torch.testing.assert_close(shared.weights - begun, after - begun, rtol=1e-3, atol=1e-7)


def test_a_rollout_ends_with_the_episode_and_the_next_one_begins_anew() -> None:
    config = _config()
    spec = read_spec(config.env)
    shared = a3c.begin(config, spec, actors=2)
    network = PolicyNetwork(architecture_of(config, spec), seed=1)
    played, steps, lengths = a3c.rollouts(config, spec, shared, 1, network), 0, []
    last = torch.empty(0)
    while len(lengths) < 3:
        rollout = next(played)
        assert len(rollout.observations) == len(rollout.rewards) + 1
        assert len(rollout.rewards) == 5 or rollout.terminated
        if steps == 0:
            assert rollout.observations[0].abs().max() <= 0.05  # CartPole's first observation
        else:
            assert torch.equal(rollout.observations[0], last)
        steps, last = steps + len(rollout.rewards), rollout.observations[-1]
        if rollout.terminated:
            lengths.append(steps)
            steps = 0
    # a pole has a reward of 1 a step
    assert shared.counts.tolist() == [[0, 0, 0], [sum(lengths), 0, 3]]
    assert shared.returns[1, :4].tolist()[:3] == lengths
    assert shared.returns.isnan().sum() == 100 - 3


def test_a_lost_life_ends_what_is_learned_and_not_the_game() -> None:
    game = "env.id=ALE/Breakout-v5", "env.life_loss_ends=true", "env.atari.screen_size=40"
    config = load_config(a3c._CONFIG, [*game, "policy.architecture=accerl-net3"])
    spec = read_spec(config.env)
    shared = a3c.begin(config, spec, actors=1)
    network = PolicyNetwork(architecture_of(config, spec), seed=1)
    played = a3c.rollouts(config, spec, shared, 0, network)
    lost = next(rollout for rollout in played if rollout.terminated)
    assert shared.counts[0, 2] == 0  # the game goes on
    assert torch.equal(next(played).observations[0], lost.observations[-1])


def test_an_actor_plays_and_learns_by_the_weights_of_its_last_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = _config("optimiser.learning_rate=0.1")
    spec, costs = read_spec(config.env), config.loss
    assert isinstance(costs, ActorCriticConfig)
    shared, slow = a3c.begin(config, spec, actors=1), a3c.begin(config, spec, actors=1)
    monkeypatch.setattr(a3c.signal, "signal", lambda *_: None)
    a3c.act(config, spec, shared, 0, 60, Event())

    network = PolicyNetwork(architecture_of(config, spec))
    played = a3c.rollouts(config, spec, slow, 0, network)
    while slow.counts[0, 0] < 60:
        vector_to_parameters(slow.weights.clone(), network.parameters())
        loss = a3c.loss_of(network, spec, costs, next(played))
        gradients = torch.autograd.grad(loss, list(network.parameters()))
        a3c.step_weights(slow, parameters_to_vector(gradients), config.optimiser)
    assert torch.equal(shared.counts[:, ::2], slow.counts[:, ::2])
    torch.testing.assert_close(shared.weights, slow.weights)


def test_processes_move_the_shared_weights_and_a_folder_is_continued(tmp_path: Path) -> None:
    config = _config()
    limits = {"actors": 2, "seconds": 120.0, "every_s": 0.5}
    a3c.train(config, tmp_path, steps=300, **limits)
    first = load_file(tmp_path / "a3c.safetensors")
    weights = a3c.begin(config, read_spec(config.env), actors=2).weights
    assert (first["weights"] != weights).float().mean() > 0.5
    a3c.train(config, tmp_path, steps=1200, **limits)
    second = load_file(tmp_path / "a3c.safetensors")
    assert not torch.equal(second["weights"], first["weights"])
    steps, updates, _ = second["counts"].sum(0).tolist()
    assert 1200 <= steps < 1300 and steps / 5 <= updates < steps
    rows = list(csv.DictReader((tmp_path / "a3c.csv").read_text().splitlines()))
    assert int(rows[-1]["env_steps"]) == steps and int(rows[-1]["updates"]) == updates
    assert [int(row["env_steps"]) for row in rows] == sorted(int(row["env_steps"]) for row in rows)
    assert float(second["time_s"]) > float(first["time_s"])
