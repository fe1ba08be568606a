"""Exploration at the actor: ε-greedy, and Ornstein–Uhlenbeck noise against its formula."""

from __future__ import annotations

from math import atanh, tanh
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from aclearn.distributions import distribution_of, epsilon_greedy
from aclearn.distributions.categorical import MASKED
from aclearn.distributions.torch_categorical import epsilon_greedy as torch_epsilon_greedy
from aclearn.rollout import (
    ActInput,
    EpsilonGreedy,
    OrnsteinUhlenbeckNoise,
    PolicySnapshot,
    act,
    final_epsilons,
)
from aclearn.types import ActionBatch, ActionSpec, PolicyOutput, PolicyVersion

STD, DAMPING = 0.3, 0.2
FIVE = distribution_of(ActionSpec.discrete(5))


def test_each_environment_has_its_own_epsilon() -> None:
    """ε_i = ε^(1 + α·i/(N−1)) of Horgan et al. 2018, section 4.1."""
    expected = [0.4**1, 0.4 ** (1 + 7 / 3), 0.4 ** (1 + 14 / 3), 0.4**8]
    np.testing.assert_allclose(final_epsilons(0.4, 7.0, 4), expected, rtol=1e-6)
    np.testing.assert_allclose(final_epsilons(0.4, 7.0, 1), [0.4 ** (1 + 7 / 2)], rtol=1e-6)


@pytest.mark.parametrize(
    ("steps", "expected"), [(4, [1.0, 0.85, 0.7, 0.55, 0.4, 0.4]), (0, [0.4, 0.4])]
)
def test_epsilon_falls_from_one(steps: int, expected: list[float]) -> None:
    falling = EpsilonGreedy(np.array([0.4, 1.0], np.float32), steps)
    for epsilon in expected:
        np.testing.assert_allclose(falling.next(), [epsilon, 1.0], rtol=1e-6)


def test_actions_are_the_best_or_any_allowed_one_with_the_probability_recorded() -> None:
    rows = 30_000
    values = np.tile(np.array([0.3, 2.0, -1.0, 5.0, 0.0], np.float32), (rows, 1))
    masks = np.tile(np.array([True, True, True, False, True]), (rows, 1))
    epsilon = np.where(np.arange(rows) % 2, 0.4, 0.0).astype(np.float32)
    policy = PolicySnapshot(
        SimpleNamespace(step=lambda seen, state: PolicyOutput(values)), PolicyVersion(0, 0)
    )
    chosen = act(policy, FIVE, ActInput({}, (), masks, epsilon), np.random.default_rng(1))
    greedy, exploring = chosen.actions[::2], chosen.actions[1::2]
    assert (greedy == 1).all()
    assert (chosen.log_prob[::2] == 0.0).all()
    shares = np.bincount(exploring, minlength=5) / len(exploring)
    np.testing.assert_allclose(shares, [0.1, 0.7, 0.1, 0.0, 0.1], atol=0.01)
    expected = np.where(exploring == 1, 0.7, 0.1)
    np.testing.assert_allclose(np.exp(chosen.log_prob[1::2]), expected, rtol=1e-5)
    # the recorded parameters are those of the mixture
    mixed = np.exp(FIVE.log_prob(chosen.parameters[1::2], np.ones(rows // 2, np.int32)))
    np.testing.assert_allclose(mixed, 0.7, rtol=1e-5)
    assert np.isfinite(epsilon_greedy(values, epsilon)).all()
    # torch's twin
    masked, its = FIVE.mask(values, masks), torch.from_numpy(epsilon)
    np.testing.assert_allclose(
        torch_epsilon_greedy(torch.from_numpy(masked), its),
        epsilon_greedy(masked, epsilon),
        rtol=1e-6,
    )
    # an agent that is out of the game allows nothing, and its action is ignored
    none = torch.full((2, 5), MASKED)
    assert torch_epsilon_greedy(none, torch.tensor([0.0, 0.5])).isfinite().all()


@pytest.mark.parametrize("damping", [DAMPING, 1.0])
def test_noise_is_added_between_the_bounds_and_forgets_slowly(damping: float) -> None:
    noise = OrnsteinUhlenbeckNoise(3, 2, std=STD, damping=damping, rng=np.random.default_rng(7))
    same, x = np.random.default_rng(7), np.zeros((3, 2))
    policy = np.array([[0.0, 0.4], [-1.0, 9.0], [0.2, -9.0]], np.float32)
    for t in range(6):
        given = ActionBatch(policy, np.full(3, 2.5, np.float32), PolicyVersion(1, t))
        found = noise.explore(given)
        changes = same.standard_normal((3, 2), dtype=np.float32)
        for b in range(3):
            for n in range(2):
                x[b, n] = (1.0 - damping) * x[b, n] + STD * float(changes[b, n])
                action = min(max(tanh(policy[b, n]) + x[b, n], -1 + 1e-6), 1 - 1e-6)
                # near a bound float32 has few numbers, whose atanh are far apart
                assert tanh(found.actions[b, n]) == pytest.approx(action, abs=1e-6)
                if abs(action) < 0.99:
                    assert found.actions[b, n] == pytest.approx(atanh(action), abs=1e-4)
        assert found.actions.dtype == found.log_prob.dtype == np.float32
        assert not found.log_prob.any() and found.at == given.at
        started = np.array([t == 2, False, t == 4])
        noise.begin(started)
        x[started] = 0.0
    assert np.isfinite(found.actions).all()
