"""Memories in learning: what the trainer computes is what the actor computed, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from aclearn.algorithms.ppo import PPOConfig
from aclearn.config.loss import default_correctors
from aclearn.distributions import distribution_of
from aclearn.learning import check_unroll, make_objective
from aclearn.learning.batch import Batch, assemble_batch
from aclearn.learning.minibatches import Minibatches, random_orders
from aclearn.learning.networks import Networks
from aclearn.learning.surrogate import _unroll
from aclearn.policies import Architecture, describe_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors, tensors_of
from aclearn.policies.policy_module import PolicyModule, zeroed_state
from aclearn.rollout import ActInput, PolicySnapshot, UnrollBuilder, UnrollCounter, act
from aclearn.types import (
    ActionSpec,
    EnvSpec,
    EnvStep,
    LeafSpec,
    Memory,
    ObservationSpec,
    PolicyVersion,
    Unroll,
    UnrollSpec,
    zeroed,
)
from aclearn.wire import decode, encode
from compress.runtimes.torch_runtime import TorchRuntime
from tests.support.architectures import altered
from tests.support.scripted_envs import ScriptedEnvs

T, B = 7, 5
FLAT = EnvSpec(ObservationSpec.plain((3,), "float32"), ActionSpec.discrete(3), masked=True)
DICT = EnvSpec(
    ObservationSpec(
        {
            "joints": LeafSpec((3,), "float32"),
            "screen": LeafSpec((4, 20, 20), "uint8", frame_stack=4),
        }
    ),
    ActionSpec.discrete(3),
)


def architecture_of(spec: EnvSpec, kind: str, size: int = 8) -> Architecture:
    return describe_architecture(
        "small-cnn" if len(spec.observation) > 1 else "mlp",
        observation=spec.observation,
        actions=spec.action,
        memory=Memory(kind, size, 2),
    )


@dataclass
class Acted:
    """An unroll, and the parameters and states behind its actions, step by step."""

    unroll: Unroll
    parameters: list[np.ndarray]
    states: list[tuple[np.ndarray, ...]]
    steps: list[EnvStep]


def act_on(
    architecture: Architecture, spec: EnvSpec, network: PolicyNetwork, **settings: Any
) -> Iterator[Acted]:
    """The unrolls of an actor with one group, which went over the wire and were checked."""
    of_unroll = UnrollSpec(spec, T, state=tuple((size,) for size in architecture.state))
    builder = UnrollBuilder(of_unroll, num_envs=B, clip_rewards=False, life_loss_ends=False)
    envs, counter = ScriptedEnvs(spec, B, **settings), UnrollCounter()
    rng, distribution = np.random.default_rng(1), distribution_of(spec.action)
    runtime = TorchRuntime(architecture)
    policy = PolicySnapshot(runtime.load(tensors_of(network)), PolicyVersion(0, 0))
    seen, state = envs.reset(), ()
    builder.begin(seen, envs.masks)
    while True:
        acted = Acted(None, [], [], [])  # type: ignore[arg-type]
        for _ in range(T):
            choice = act(policy, distribution, ActInput(seen, state, envs.masks), rng)
            step = envs.step()
            builder.add(choice, step, envs.masks)
            acted.parameters.append(choice.parameters)
            acted.steps.append(step)
            seen, state = step.observations, zeroed(choice.next_state, step.reset)
            acted.states.append(state)
        acted.unroll = _sent(builder.take(counter))
        check_unroll(acted.unroll, of_unroll)
        yield acted


def _sent(unroll: Unroll) -> Unroll:
    frames = encode(unroll, run="r", incarnation="actor", sequence=1)
    received = decode([bytes(frame) for frame in frames]).message
    assert isinstance(received, Unroll)
    return received


def networks_of(architecture: Architecture, network: PolicyNetwork) -> Networks:
    networks = Networks(architecture, device=torch.device("cpu"))
    load_tensors(networks.network, tensors_of(network))
    return networks


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("spec", [FLAT, DICT], ids=["masked", "stacked-dict"])
def test_the_trainer_computes_what_the_actor_computed(kind: str, spec: EnvSpec) -> None:
    architecture = architecture_of(spec, kind)
    network = PolicyNetwork(architecture, seed=3)
    for parameter in network.parameters():  # a policy that is not nearly uniform
        parameter.data.mul_(3.0)
    networks = networks_of(architecture, network)
    ends, last = 0, None
    state: tuple[np.ndarray, ...] = tuple(np.zeros((B, n), np.float32) for n in architecture.state)
    unrolls = act_on(architecture, spec, network, seed=4, faults=0.03)
    for _, acted in zip(range(4), unrolls, strict=False):
        batch = assemble_batch([acted.unroll], observation=spec.observation)
        for found, expected in zip(batch.state, state, strict=True):
            np.testing.assert_array_equal(found, expected)  # zeros at the beginning
        if last is not None:  # the last observation of the unroll before, in its state
            np.testing.assert_allclose(last, acted.parameters[0], atol=1e-5)
        output = _unroll(batch, networks)
        policy = networks.distribution(output.parameters, batch.step_masks)
        valid = batch.valid
        found = policy.log_prob(batch.actions)[valid]
        torch.testing.assert_close(found, batch.behaviour_log_prob[valid], atol=1e-5, rtol=0)
        # the observation that an end reached is in the step after, which is not valid
        reached = torch.from_numpy(np.stack([step.reset & ~step.faulted for step in acted.steps]))
        reached[1:] &= valid[:-1]  # not in an episode that a fault took away
        assert not valid[reached].any()
        seen = valid | reached
        expected = torch.from_numpy(np.stack(acted.parameters))
        torch.testing.assert_close(_masked(output.parameters, batch, spec)[seen], expected[seen])
        state = acted.states[-1]
        ends += int((batch.terminated | batch.truncated).sum())
        leaves = {name: leaf[-1] for name, leaf in batch.observations.items()}
        after = networks.step(leaves, zeroed_state(output.state, batch.starts[-1])).parameters
        masks = None if acted.unroll.masks is None else acted.unroll.masks[-1]
        last = distribution_of(spec.action).mask(after.detach().numpy(), masks)
    assert ends > 10


def _masked(parameters: torch.Tensor, batch: Batch, spec: EnvSpec) -> torch.Tensor:
    masks = None if batch.step_masks is None else batch.step_masks.flatten(0, 1).numpy()
    rows = parameters.detach().flatten(0, 1).numpy()
    return torch.from_numpy(distribution_of(spec.action).mask(rows, masks)).view_as(parameters)


def learned(make, architecture: Architecture, batch: Batch, **options: Any) -> torch.Tensor:
    """All weights after an update by a batch, as one vector."""
    learner = make.learner(architecture, **options)
    [report] = learner.learn(batch)
    assert report.applied
    return torch.cat([weight.detach().flatten() for weight in learner.network.parameters()])


@pytest.mark.parametrize("how", ["chunks", "threads", "steps"])
def test_a_gradient_is_that_of_the_whole_batch(make, how: str, monkeypatch) -> None:
    batch = make.batch(make.remembering, T, B, seed=3)
    whole = make.gradient_of(batch, make.remembering)
    if how == "chunks":
        parts = make.gradient_of(batch, make.remembering, chunk_samples=2 * T)
    elif how == "threads":
        monkeypatch.setattr("aclearn.learning.parallel_worker._LEAST_SAMPLES", 1)
        learner = make.learner(make.remembering)
        worker = learner.make_worker(2)
        make.update(learner, batch, worker=worker)
        worker.close()
        parts = make.gradient(learner)
    else:  # step after step, as a module of a user's own
        monkeypatch.setattr(PolicyNetwork, "unroll", PolicyModule.unroll)
        parts = make.gradient_of(batch, make.remembering)
    assert whole.abs().max() > 1e-3
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)


def test_a_burn_in_brings_the_state_up_to_date_and_learns_the_rest(make) -> None:
    N = 3  # the state also begins where the burn-in ends
    batch = make.batch(make.remembering, T, B, seed=3)
    batch.valid[N - 1] = torch.arange(B) > 1
    learner = make.learner(make.remembering)
    with torch.no_grad():  # step by step, by the weights of the learner
        state = batch.state
        for t in range(N):
            at_t = {name: leaf[t] for name, leaf in batch.observations.items()}
            state = learner.network.step(at_t, zeroed_state(state, batch.starts[t])).state
        state = zeroed_state(state, batch.starts[N])
    assert batch.starts[N].tolist() == [True, True, False, False, False]
    found = learned(make, make.remembering, batch, burn_in_steps=N)
    expected = learned(make, make.remembering, batch.after(N, state))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
    stale = learned(make, make.remembering, batch.after(N, batch.state))
    assert (found - stale).abs().max() > 1e-4
    # what is not learned changes nothing but the state
    rewards = batch.rewards.clone()
    rewards[:N] = 1e6
    changed = make.replace(batch, rewards=rewards)
    torch.testing.assert_close(learned(make, make.remembering, changed, burn_in_steps=N), found)


def test_ppos_passes_over_whole_sequences_are_those_of_each_alone(make) -> None:
    """With advantages of the whole batch, minibatches add up to its gradient."""
    config = PPOConfig(discount=0.9, normalise_advantages=True)
    objective = make_objective(config, default_correctors(config))
    learner = make.learner(make.remembering, objective=objective)
    batch = make.batch(make.remembering, T, B, seed=2)
    prepared = learner.prepare(batch, learner.own_worker)
    steps = prepared.steps

    def gradient_of(part: Batch) -> torch.Tensor:
        learner.differentiate(part, learner.own_worker, steps)
        return torch.cat([each.flatten().clone() for each in learner.own_worker.gradients()])

    orders = random_orders(batch, torch.Generator().manual_seed(1))
    parts = Minibatches(prepared, count=3, passes=1, orders=orders)
    summed = sum(gradient_of(part) for _, part in parts)
    torch.testing.assert_close(summed, gradient_of(prepared), rtol=1e-4, atol=1e-6)
    reports = learner.learn(batch, minibatches=3, epochs=2)
    assert len(reports) == 6 and sum(report.new_steps for report in reports) == int(steps)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_bf16_and_normalisers_take_a_memory(make, kind: str) -> None:
    architecture = altered(
        make.flat,
        name="normalised",
        memory=Memory(kind, 4, 1),
        normalise_observations=True,
        normalise_returns=True,
    )
    batch = make.batch(architecture, T, B, seed=2)
    exact, rounded = (
        learned(make, architecture, batch, amp_dtype=dtype) for dtype in (None, torch.bfloat16)
    )
    assert (exact != rounded).any()
    first = torch.cat(
        [p.detach().flatten() for p in make.learner(architecture).network.parameters()]
    )
    assert (exact - first).abs().max() > 1e-4
    torch.testing.assert_close(rounded, exact, rtol=0.1, atol=0.02)
