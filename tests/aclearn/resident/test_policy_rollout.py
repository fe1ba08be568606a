"""Rollouts of a policy: in torch between steps, and inside the kernel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aclearn.distributions import torch_distribution_of
from aclearn.learning import BatchStopped, StopCheck
from aclearn.policies import build_architecture
from aclearn.policies.network import PolicyNetwork
from aclearn.policies.policy_module import zeroed_state
from aclearn.types import OBSERVATION, Memory

resident = pytest.importorskip("aclearn.resident")
from aclearn.resident.network import fits_in_kernel  # noqa: E402
from aclearn.resident.noise import OrnsteinUhlenbeckNoise  # noqa: E402
from aclearn.resident.policy_rollout import PolicyRollout  # noqa: E402
from tests.support.warm_ups import WarmUps  # noqa: E402

_T, _N = 24, 2500


class Game:
    """Environments, and a policy for them."""

    def __init__(self, name: str = "CartPole", *, squash: bool = False, **options) -> None:
        self.env = resident.find_env(name)
        self.spec = self.env.spec(squash=squash)
        options = {"hidden": (8,), **options}
        self.architecture = build_architecture(
            "mlp", self.spec.observation, self.spec.action, **options
        )
        self.network = PolicyNetwork(self.architecture, seed=4)
        self.weights = dict(self.network.named_parameters())
        self._squash = squash

    def envs(self, count: int = _N):
        """New ones, at their first observations."""
        made = resident.ResidentEnvs(
            self.env, envs=count, device="cpu", steps=_T, seed=5, threads=2, squash=self._squash
        )
        made.reset()
        return made

    def outputs(self, envs) -> torch.Tensor:
        """The policy's parameters `[T, N, P]` of what the environments showed."""
        with torch.no_grad():
            parameters, _ = self.network(envs.buffers.observations[:-1].flatten(0, 1))
        return parameters.unflatten(0, (_T, -1))

    def log_probs(self, envs) -> torch.Tensor:
        """The learner's, of the actions taken."""
        policy = torch_distribution_of(self.spec.action)(self.outputs(envs))
        return policy.log_prob(envs.buffers.actions)


def assert_same(found: list[tuple]) -> None:
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("captured", [True, False])
def test_a_state_goes_on_from_rollout_to_rollout_and_is_zero_where_an_episode_begins(
    kind: str, captured: bool
) -> None:
    game = Game(memory=Memory(kind, 6, 1))
    assert not fits_in_kernel(game.architecture)
    for parameter in game.network.parameters():  # a policy that is far from uniform
        parameter.data.mul_(3.0)
    envs = game.envs(40)
    rollout = PolicyRollout(envs, game.architecture, stream=WarmUps() if captured else None)
    rollout.refresh(game.weights)
    state = tuple(torch.zeros(40, units) for units in game.architecture.state)
    ends = 0
    for run in range(3):
        if run == 2 and not captured:  # a stop within a rollout leaves no trace
            with pytest.raises(BatchStopped):
                rollout.run(_stopping_at(5))
        rollout.run()
        b = envs.buffers
        starts = torch.cat([torch.zeros_like(b.valid[:1]), ~b.valid])
        for found, expected in zip(rollout.first_state, state, strict=True):
            torch.testing.assert_close(found, expected)
        with torch.no_grad():
            output = game.network.unroll(
                {OBSERVATION: b.observations[:-1]}, tuple(rollout.first_state), starts[:-1]
            )
        policy = torch_distribution_of(game.spec.action)(output.parameters)
        torch.testing.assert_close(
            policy.log_prob(b.actions)[b.valid], b.log_probs[b.valid], atol=1e-5, rtol=0
        )
        state = zeroed_state(output.state, starts[-1])
        for found, expected in zip(rollout.state, state, strict=True):
            torch.testing.assert_close(found, expected)
        ends += int((~b.valid).sum())
    assert ends > 40
    envs.close()


def _stopping_at(step: int) -> Callable[[], None]:
    calls = iter(range(step))

    def check() -> None:
        if next(calls, None) is None:
            raise BatchStopped

    return check


@pytest.mark.parametrize(
    ("name", "activation"), [("CartPole", "relu"), ("Pendulum", "tanh")], ids=("choice", "number")
)
def test_the_kernel_and_torch_take_the_same_actions(name: str, activation: str) -> None:
    game = Game(name, hidden=(32, 17), activation=activation)
    for parameter in game.network.parameters():  # a policy that is far from uniform
        parameter.data.add_(
            0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        )
    played = []
    for in_kernel in (False, True):
        envs = game.envs()
        rollout = PolicyRollout(envs, game.architecture, in_kernel=in_kernel)
        rollout.refresh(game.weights)
        for _ in range(2):  # the second begins where the first ended
            last = envs.buffers.observations[_T].clone()
            rollout.run()
        assert torch.equal(envs.buffers.observations[0], last)
        played.append(envs)
        envs.close()
    torch_, kernel = records = [envs.buffers for envs in played]
    # rounding may tip an action and with it the rest of an episode: of a few in 2500 at most
    same = (torch_.actions.reshape(_T, _N, -1) - kernel.actions.reshape(_T, _N, -1)).abs() < 1e-3
    whole = same.all(-1).all(0)
    assert whole.float().mean() > 0.995
    for field in ("log_probs", "rewards", "observations"):
        both = (getattr(each, field)[:, whole] for each in records)
        torch.testing.assert_close(*both, atol=2e-3, rtol=1e-3)

    for envs in played:
        torch.testing.assert_close(
            game.log_probs(envs), envs.buffers.log_probs, atol=1e-4, rtol=1e-4
        )


def test_the_runs_before_a_capture_leave_no_trace() -> None:
    game, found = Game(), []
    for stream in (None, WarmUps()):
        envs = game.envs(30)
        rollout = PolicyRollout(envs, game.architecture, stream=stream)
        rollout.refresh(game.weights)
        rollout.run()
        rollout.run()
        found.append((envs.take_sums(), envs.steps, *vars(envs.buffers).values()))
    assert_same(found)


def test_a_stopped_rollout_leaves_no_trace() -> None:
    game, found = Game("Pendulum", squash=True, critic="action"), []
    for stops in (False, True):
        envs = game.envs()
        noise = OrnsteinUhlenbeckNoise(envs, std=0.1, damping=0.2)
        rollout = PolicyRollout(envs, game.architecture, noise=noise)
        rollout.refresh(game.weights)
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
    assert_same(found)


def test_what_the_kernel_cannot_compute_is_left_to_torch() -> None:
    spec = resident.find_env("CartPole").spec()
    spaces = ("mlp", spec.observation, spec.action)
    assert not fits_in_kernel(build_architecture(*spaces, hidden=(65,)))
    assert not fits_in_kernel(build_architecture(*spaces, hidden=(8,), activation="elu"))
    normalised = build_architecture(*spaces, hidden=(8,), normalise_observations=True)
    assert not fits_in_kernel(normalised)
    assert fits_in_kernel(build_architecture(*spaces, hidden=(64, 64), separate_value=True))


@pytest.mark.parametrize(
    "options", [{"memory": Memory("gru", 6, 1)}, {"normalise_observations": True}]
)
def test_a_policy_that_the_kernel_cannot_compute_is_refused_there(options) -> None:
    game = Game(**options)
    envs = game.envs(4)
    with pytest.raises(ValueError, match=r"in_kernel: expected a chain .* leave in_kernel out"):
        PolicyRollout(envs, game.architecture, in_kernel=True)
    envs.close()


def test_statistics_of_observations_are_not_rounded_with_the_weights() -> None:
    game = Game(normalise_observations=True)
    weights = game.weights
    weights["input.mean"].copy_(torch.tensor([1e-3, 2.002, 3.003, 1000.3]))
    weights["input.std"].copy_(torch.tensor([1e-3, 1.001, 3e-30, 10.03]))
    weights["policy.weight"].data.mul_(60.0)
    envs = game.envs(50)
    rollout = PolicyRollout(envs, game.architecture, dtype=torch.bfloat16)
    rollout.refresh(weights)
    rollout.run()
    rounded = {name: weight.data.bfloat16().float() for name, weight in weights.items()}
    rounded |= {name: weights[name].data for name in ("input.mean", "input.std")}
    for name, weight in rounded.items():
        weights[name].data = weight
    torch.testing.assert_close(game.log_probs(envs), envs.buffers.log_probs)
    envs.close()


def test_epsilon_greedy_takes_the_best_action_or_any_with_the_probability_recorded() -> None:
    game = Game(critic="dueling")
    envs = game.envs()
    epsilon = torch.where(torch.arange(_N) % 2 == 0, 0.0, 0.4)
    rollout = PolicyRollout(envs, game.architecture, epsilon=epsilon)
    rollout.refresh(game.weights)
    rollout.run()
    buffers = envs.buffers
    best = buffers.actions == game.outputs(envs).argmax(2)
    taken = buffers.valid
    assert best[:, ::2][taken[:, ::2]].all()
    share = best[:, 1::2][taken[:, 1::2]].float().mean()
    assert float(share) == pytest.approx(0.8, abs=0.01)
    expected = torch.where(best, 1.0 - epsilon / 2, epsilon / 2)
    torch.testing.assert_close(buffers.log_probs[taken].exp(), expected[taken])
    envs.close()
