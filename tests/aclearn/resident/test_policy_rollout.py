"""Rollouts of a policy: in torch between steps, and inside the kernel."""

from __future__ import annotations

import pytest
import torch

from aclearn.distributions import torch_distribution_of
from aclearn.learning import BatchStopped, StopCheck
from aclearn.policies import build_architecture
from aclearn.policies.network import PolicyNetwork

resident = pytest.importorskip("aclearn.resident")
from aclearn.resident.network import fits_in_kernel  # noqa: E402
from aclearn.resident.noise import OrnsteinUhlenbeckNoise  # noqa: E402
from aclearn.resident.policy_rollout import PolicyRollout  # noqa: E402
from tests.support.warm_ups import WarmUps  # noqa: E402

_T, _N = 24, 2500


@pytest.mark.parametrize(
    ("name", "activation"), [("CartPole", "relu"), ("Pendulum", "tanh")], ids=("choice", "number")
)
def test_the_kernel_and_torch_take_the_same_actions(name: str, activation: str) -> None:
    env = resident.find_env(name)
    action = env.spec().action
    architecture = build_architecture(
        "mlp", env.spec().observation, action, hidden=(32, 17), activation=activation
    )
    network = PolicyNetwork(architecture, seed=4)
    for parameter in network.parameters():  # a policy that is far from uniform
        parameter.data.add_(
            0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        )
    weights = dict(network.named_parameters())
    records = []
    for in_kernel in (False, True):
        envs = resident.ResidentEnvs(env, envs=_N, device="cpu", steps=_T, seed=5, threads=2)
        envs.reset()
        rollout = PolicyRollout(envs, architecture, in_kernel=in_kernel)
        rollout.refresh(weights)
        for _ in range(2):  # the second begins where the first ended
            last = envs.buffers.observations[_T].clone()
            rollout.run()
        assert torch.equal(envs.buffers.observations[0], last)
        records.append(envs.buffers)
        envs.close()
    torch_, kernel = records
    # rounding may tip an action and with it the rest of an episode: of a few in 2500 at most
    same = (torch_.actions.reshape(_T, _N, -1) - kernel.actions.reshape(_T, _N, -1)).abs() < 1e-3
    whole = same.all(-1).all(0)
    assert whole.float().mean() > 0.995
    for field in ("log_probs", "rewards", "observations"):
        both = (getattr(each, field)[:, whole] for each in records)
        torch.testing.assert_close(*both, atol=2e-3, rtol=1e-3)

    # and their log-probabilities are those of the learner
    for record in records:
        with torch.no_grad():
            parameters, _ = network(record.observations[:-1].flatten(0, 1))
        policy = torch_distribution_of(action)(parameters.unflatten(0, (_T, _N)))
        log_probs = policy.log_prob(record.actions)
        torch.testing.assert_close(log_probs, record.log_probs, atol=1e-4, rtol=1e-4)


def test_the_runs_before_a_capture_leave_no_trace() -> None:
    env = resident.find_env("CartPole")
    architecture = build_architecture("mlp", env.spec().observation, env.spec().action, hidden=(8,))
    weights = dict(PolicyNetwork(architecture, seed=4).named_parameters())
    found = []
    for stream in (None, WarmUps()):
        envs = resident.ResidentEnvs(env, envs=30, device="cpu", steps=_T, seed=5)
        envs.reset()
        rollout = PolicyRollout(envs, architecture, stream=stream)
        rollout.refresh(weights)
        rollout.run()
        rollout.run()
        found.append((envs.take_sums(), envs.steps, *vars(envs.buffers).values()))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_a_stopped_rollout_leaves_no_trace() -> None:
    env = resident.find_env("Pendulum")
    spec = env.spec(squash=True)
    architecture = build_architecture(
        "mlp", spec.observation, spec.action, hidden=(8,), critic="action"
    )
    weights = dict(PolicyNetwork(architecture, seed=4).named_parameters())
    found = []
    for stops in (False, True):
        envs = resident.ResidentEnvs(
            env, envs=_N, device="cpu", steps=_T, seed=5, threads=2, squash=True
        )
        envs.reset()
        noise = OrnsteinUhlenbeckNoise(envs, std=0.1, damping=0.2)
        rollout = PolicyRollout(envs, architecture, noise=noise)
        rollout.refresh(weights)
        rollout.run()
        envs.take_sums()
        if stops:
            asked = iter(range(_T))
            with pytest.raises(BatchStopped):
                rollout.run(StopCheck(lambda asked=asked: next(asked) < 10))
            assert next(asked) == 11  # by one of the two threads
        rollout.run()
        found.append((envs.take_sums(), envs.steps, noise.noise, *vars(envs.buffers).values()))
        envs.close()
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def test_what_the_kernel_cannot_compute_is_left_to_torch() -> None:
    spec = resident.find_env("CartPole").spec()
    spaces = ("mlp", spec.observation, spec.action)
    assert not fits_in_kernel(build_architecture(*spaces, hidden=(65,)))
    assert not fits_in_kernel(build_architecture(*spaces, hidden=(8,), activation="elu"))
    normalised = build_architecture(*spaces, hidden=(8,), normalise_observations=True)
    assert not fits_in_kernel(normalised)
    assert fits_in_kernel(build_architecture(*spaces, hidden=(64, 64), separate_value=True))


def test_statistics_of_observations_are_not_rounded_with_the_weights() -> None:
    env = resident.find_env("CartPole")
    architecture = build_architecture(
        "mlp", env.spec().observation, env.spec().action, hidden=(8,), normalise_observations=True
    )
    network = PolicyNetwork(architecture, seed=4)
    weights = dict(network.named_parameters())
    weights["input.mean"].copy_(torch.tensor([1e-3, 2.002, 3.003, 1000.3]))
    weights["input.std"].copy_(torch.tensor([1e-3, 1.001, 3e-30, 10.03]))
    weights["policy.weight"].data.mul_(60.0)
    envs = resident.ResidentEnvs(env, envs=50, device="cpu", steps=_T, seed=5, threads=2)
    envs.reset()
    rollout = PolicyRollout(envs, architecture, dtype=torch.bfloat16)
    rollout.refresh(weights)
    rollout.run()
    rounded = {name: weight.data.bfloat16().float() for name, weight in weights.items()}
    rounded |= {name: weights[name].data for name in ("input.mean", "input.std")}
    for name, weight in rounded.items():
        weights[name].data = weight
    record = envs.buffers
    with torch.no_grad():
        parameters, _ = network(record.observations[:-1].flatten(0, 1))
    policy = torch_distribution_of(env.spec().action)(parameters.unflatten(0, (_T, 50)))
    torch.testing.assert_close(policy.log_prob(record.actions), record.log_probs)
    envs.close()


def test_epsilon_greedy_takes_the_best_action_or_any_with_the_probability_recorded() -> None:
    env = resident.find_env("CartPole")
    architecture = build_architecture(
        "mlp", env.spec().observation, env.spec().action, hidden=(8,), critic="dueling"
    )
    network = PolicyNetwork(architecture, seed=4)
    envs = resident.ResidentEnvs(env, envs=_N, device="cpu", steps=_T, seed=5, threads=2)
    envs.reset()
    epsilon = torch.where(torch.arange(_N) % 2 == 0, 0.0, 0.4)
    rollout = PolicyRollout(envs, architecture, epsilon=epsilon)
    rollout.refresh(dict(network.named_parameters()))
    rollout.run()
    buffers = envs.buffers
    with torch.no_grad():
        values, _ = network(buffers.observations[:-1].flatten(0, 1))
    best = buffers.actions == values.view(_T, _N, 2).argmax(2)
    taken = buffers.valid
    assert best[:, ::2][taken[:, ::2]].all()
    share = best[:, 1::2][taken[:, 1::2]].float().mean()
    assert float(share) == pytest.approx(0.8, abs=0.01)
    expected = torch.where(best, 1.0 - epsilon / 2, epsilon / 2)
    torch.testing.assert_close(buffers.log_probs[taken].exp(), expected[taken])
    envs.close()
