"""What `auto` stands for: a network that fits every space, and the number format."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aclearn.policies import choose_architecture, describe_architecture, halves_pay
from aclearn.types import LeafSpec, ObservationSpec

_FLAT = LeafSpec((3,), "float32")


def _image(height: int, width: int | None = None, channels: int = 3) -> LeafSpec:
    return LeafSpec((channels, height, width or height), "uint8")


@pytest.mark.parametrize(
    ("leaves", "env_id", "expected", "pays"),
    [
        ({"observation": _FLAT}, "CartPole-v1", "mlp", False),
        ({"observation": LeafSpec((6,), "float32", binary=True)}, "Taxi-v3", "mlp", False),
        ({"observation": LeafSpec((21_168,), "float32")}, "a:b", "mlp", False),  # float images
        ({"observation": LeafSpec((4, 84, 84), "uint8", 4)}, "a:b", "nature", True),
        ({"observation": _image(36)}, "a:b", "nature", True),
        ({"observation": _image(200, 35)}, "a:b", "small-cnn", True),
        ({"observation": _image(8)}, "a:b", "small-cnn", False),
        ({"observation": _image(10, 5, 1)}, "a:b", "small-cnn", False),
        ({"observation": _image(4)}, "a:b", "mlp", False),
        ({"observation": _image(7)}, "minigrid:MiniGrid-DoorKey-5x5-v0", "minigrid", False),
        ({"observation": _image(7)}, "BabyAI-GoToObj-v0", "minigrid", False),
        ({"see": _image(64), "feel": _FLAT}, "a:b", "nature", True),
        ({"far": _image(84), "near": _image(9)}, "a:b", "small-cnn", False),
    ],
)
def test_the_choice_is_by_sizes_dtypes_and_what_numbers_mean(
    leaves: dict[str, LeafSpec], env_id: str, expected: str, pays: bool
) -> None:
    observation = ObservationSpec(leaves)
    name, why = choose_architecture(observation, env_id)
    assert name == expected and why
    assert halves_pay(observation) is pays


@given(
    sides=st.lists(st.tuples(*[st.integers(1, 90)] * 2), max_size=3),
    env_id=st.sampled_from(["a:b", "MiniGrid-Empty-5x5-v0"]),
)
def test_the_chosen_network_fits_whatever_the_images(
    sides: list[tuple[int, int]], env_id: str
) -> None:
    leaves = {f"image_{i}": _image(*side) for i, side in enumerate(sides)} | {"feel": _FLAT}
    observation = ObservationSpec(leaves)
    name, _ = choose_architecture(observation, env_id)
    assert describe_architecture(name, observation=observation, actions=4).parameters > 0


@pytest.mark.parametrize(("height", "width"), [(5, 5), (8, 8), (10, 5), (35, 20)])
def test_a_small_network_sees_every_pixel(height: int, width: int) -> None:
    from aclearn.policies.network import PolicyNetwork

    observation = ObservationSpec({"observation": _image(height, width)})
    name, _ = choose_architecture(observation)
    architecture = describe_architecture(
        name, observation=observation, actions=4, activation="tanh"
    )
    network = PolicyNetwork(architecture, seed=1)
    image = torch.full((1, 3, height, width), 0.5, requires_grad=True)
    _, value = network(image)
    value.sum().backward()
    assert image.grad is not None and bool((image.grad != 0).all())
