"""Memories in learning: what the trainer computes is what the actor computed, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from aclearn.distributions import distribution_of
from aclearn.learning import check_unroll
from aclearn.learning.batch import Batch, assemble_batch
from aclearn.learning.networks import Networks
from aclearn.learning.surrogate import _unroll
from aclearn.policies import Architecture, describe_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors, tensors_of
from aclearn.policies.policy_module import zeroed_state
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
