"""Critics Q(x, a) of Box actions: their layers, their values, their gradients, and the rest."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aclearn.policies import Architecture, build_architecture
from aclearn.policies.network import PolicyNetwork, load_tensors, tensors_of
from aclearn.types import ActionSpec, Convolution, LeafSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart

BOX = ActionPart(shape=(2,), dtype="float32", low=(-2.0, 0.0), high=(2.0, 1.0))
ACTIONS = ActionSpec.of((BOX,), squash=True)
FLAT = ObservationSpec.plain((3,), "float32")
LEAVES = ObservationSpec({"speed": LeafSpec((3,), "float32"), "view": LeafSpec((1, 6, 6), "uint8")})


def built(critic: str, observation: ObservationSpec = FLAT) -> Architecture:
    return build_architecture(
        "own",
        observation,
        ACTIONS,
        convolutions=(Convolution(2, 3, 1),),
        hidden=(5,),
        activation="tanh",
        critic=critic,
        std_from_observations=critic == "actions",
    )


def randomised(architecture: Architecture) -> PolicyNetwork:
    """A network whose heads are not small."""
    network, rng = PolicyNetwork(architecture, seed=0), np.random.default_rng(1)
    shapes = architecture.tensor_shapes().items()
    load_tensors(network, {name: rng.normal(size=s).astype("f") for name, s in shapes})
    return network


@pytest.mark.parametrize("critic", ["action", "actions"])
def test_values_are_those_of_a_tower_for_each_critic(critic: str) -> None:
    network, rng = randomised(built(critic)), np.random.default_rng(2)
    weights = tensors_of(network)
    x, action = rng.normal(size=(4, 2, 3)), rng.uniform(-1, 1, (4, 2, 2))
    leaves = {name: torch.tensor(x, dtype=torch.float32) for name in FLAT}
    found = network.action_values(leaves, torch.tensor(action, dtype=torch.float32))
    for name, values in zip(("value", "second_value")[: len(critic) - 5], found, strict=True):
        hidden = np.concatenate([x, action], -1) @ weights[f"{name}_hidden.0.weight"].T
        hidden = np.tanh(hidden + weights[f"{name}_hidden.0.bias"])
        expected = hidden @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        np.testing.assert_allclose(values.detach(), expected[..., 0], rtol=1e-4, atol=1e-5)
    # the value of an observation is that of the policy's mode; a pair is not computed for it
    leaves = {name: leaf[0] for name, leaf in leaves.items()}
    output = network.step(leaves)
    assert (output.value is None) == (critic == "actions")
    if output.value is None:
        return
    mode = network.action_values(leaves, output.parameters[:, :2].tanh())[0]
    torch.testing.assert_close(output.value, mode)


@pytest.mark.parametrize("observation", [FLAT, LEAVES])
def test_a_gradient_reaches_the_critics_alone_or_the_actions_alone(observation) -> None:
    architecture = built("actions", observation)
    network = randomised(architecture)
    leaves = {name: torch.ones(2, *leaf.shape) for name, leaf in observation.items()}
    actions = network.step(leaves).parameters[:, :2].tanh()

    def reached(values: torch.Tensor) -> set[str]:
        network.zero_grad()
        values.sum().backward(retain_graph=True)
        named = network.named_parameters()
        return {name for name, p in named if p.grad is not None and p.grad.any()}

    first, second = network.action_values(leaves, actions.detach())
    of_actor = architecture.acting().tensor_shapes().keys()
    assert reached(first + second) == architecture.tensor_shapes().keys() - of_actor
    assert reached(first).isdisjoint(reached(second)) or observation is LEAVES
    of_policy = reached(network.action_values(leaves, actions, fixed=True)[1])
    assert of_policy == of_actor  # no encoder is shared


def test_actors_get_the_part_without_critics() -> None:
    for architecture in (built("action"), built("actions"), built("actions", LEAVES)):
        acting = architecture.acting()
        assert acting.critic is None and acting.acting() == acting
        assert acting.digest() != architecture.digest()
        assert not any("value" in name for name in acting.tensor_shapes())
        assert Architecture.from_dict(acting.to_dict()) == acting
        whole, part = randomised(architecture), PolicyNetwork(acting)
        load_tensors(part, tensors_of(whole, acting.tensor_shapes()))
        leaves = {name: torch.ones(2, *leaf.shape) for name, leaf in acting.observation.items()}
        output = part.step(leaves)
        assert output.value is None and output.q is None
        torch.testing.assert_close(output.parameters, whole.step(leaves).parameters)
    with_value = build_architecture("own", FLAT, ACTIONS, hidden=(5,))
    assert with_value.acting() is with_value
