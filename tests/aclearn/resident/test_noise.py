"""Ornstein–Uhlenbeck noise of a deterministic policy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.policies import build_architecture
from aclearn.policies.network import PolicyNetwork

resident = pytest.importorskip("aclearn.resident")
from aclearn.resident.noise import OrnsteinUhlenbeckNoise  # noqa: E402
from aclearn.resident.policy_rollout import PolicyRollout  # noqa: E402

STD, DAMPING = 0.06, 0.2


class Played:
    """Pendulums and the noise of each of their actions, `[steps, N]`."""

    def __init__(self, envs: int, steps: int, *, std: float = STD, threads: int = 2) -> None:
        env = resident.find_env("Pendulum")
        spec = env.spec(squash=True)
        self.envs = resident.ResidentEnvs(
            env, envs=envs, device="cpu", steps=1, seed=5, threads=threads, squash=True
        )
        architecture = build_architecture(
            "mlp", spec.observation, spec.action, hidden=(8,), critic="action"
        )
        network = PolicyNetwork(architecture, seed=4)
        noise = OrnsteinUhlenbeckNoise(self.envs, std=std, damping=DAMPING)
        rollout = PolicyRollout(self.envs, architecture, noise=noise)
        rollout.refresh(dict(network.named_parameters()))
        self.envs.reset()
        made, actions, modes, valid = [], [], [], []
        for _ in range(steps):
            rollout.run()
            buffers = self.envs.buffers
            made.append(noise.noise[:, 0].clone())
            actions.append(buffers.actions[0, :, 0].tanh())
            with torch.no_grad():
                modes.append(network(buffers.observations[0])[0][:, 0].tanh())
            valid.append(buffers.valid[0].clone())
        self.noise, self.actions, self.modes = map(torch.stack, (made, actions, modes))
        self.valid = torch.stack(valid)
        self.envs.close()


def test_it_has_the_variance_and_the_autocorrelation_of_the_formula() -> None:
    played = Played(4000, 200)
    noise = played.noise.double().numpy()
    kept = 1.0 - DAMPING
    # from 0 on: the variance after k steps is std² (1 − kept^2k) / (1 − kept²)
    for k in (1, 2, 5, 100):
        expected = STD**2 * (1.0 - kept ** (2 * k)) / (1.0 - kept**2)
        # the estimate deviates by √(2/N) of it
        assert noise[k - 1].var() == pytest.approx(expected, rel=0.1), k
        assert noise[k - 1].mean() == pytest.approx(0.0, abs=5 * (expected / 4000) ** 0.5), k
    for lag in (1, 3, 10):
        found = np.corrcoef(noise[100], noise[100 + lag])[0, 1]
        assert found == pytest.approx(kept**lag, abs=0.05), lag
    assert abs(np.corrcoef(noise[100, :-1], noise[100, 1:])[0, 1]) < 0.05, "environments are alone"
    torch.testing.assert_close(played.actions, played.modes + played.noise, atol=1e-5, rtol=0)


def test_it_begins_each_episode_at_zero() -> None:
    played = Played(50, 203)
    assert not played.valid[200].any() and played.valid[199].all() and played.valid[201].all()
    assert (played.noise[199] != 0).all()
    assert (played.noise[200] == 0).all()
    assert played.noise[201].std() == pytest.approx(STD, rel=0.5)


def test_it_is_the_same_for_any_number_of_environments_and_actions_are_bounded() -> None:
    few, many = Played(7, 30, std=3.0), Played(2100, 30, std=3.0)
    torch.testing.assert_close(few.noise, many.noise[:, :7], rtol=0, atol=0)
    assert few.actions.abs().max() <= 1.0
    assert (few.actions.abs() > 0.99).float().mean() > 0.5
