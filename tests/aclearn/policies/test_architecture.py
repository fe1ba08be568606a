"""Architectures as data: layers, shapes, counts by hand, digests and refusals."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from gymnasium import spaces

from aclearn.config import EnvConfig
from aclearn.distributions import distribution_of
from aclearn.envs.observation_layout import ObservationLayout
from aclearn.errors import ConfigError
from aclearn.policies import (
    Architecture,
    Convolution,
    ModuleSpec,
    ResidualSection,
    build_architecture,
    describe_architecture,
    users_architecture,
)
from aclearn.policies.layers import output_shapes
from aclearn.types import ARCHITECTURES, ActionSpec, LeafSpec, ObservationSpec, PolicyVersion
from aclearn.types.action_spec import ActionPart
from tests.support.architectures import altered, parts_of


def _image(name: str, **changes: object) -> Architecture:
    given = {"observation": ObservationSpec.plain((4, 84, 84), "uint8"), "actions": 6}
    return describe_architecture(name, **{**given, **changes})


def _flat(**changes: object) -> Architecture:
    given = {"observation": ObservationSpec.plain((4,), "float32"), "actions": 2}
    return describe_architecture("mlp", **{**given, **changes})


_DARK = LeafSpec((4, 84, 84), "uint8", high=9)


def _flat_shape(architecture: Architecture) -> tuple[int, ...]:
    return output_shapes(architecture.layers, architecture.observation)["flatten"]


# filters, kernel, stride; then the fully connected width (Mnih et al. 2015; AcceRL Table 6)
_LAYERS = {
    "nature": ([(32, 8, 4), (64, 4, 2), (64, 3, 1)], (512,)),
    "accerl-original": ([(32, 8, 4), (64, 4, 2), (64, 3, 1)], (2048,)),
    "accerl-net1": ([(16, 8, 4), (32, 4, 2)], (256,)),
    "accerl-net2": ([(8, 8, 4), (16, 4, 2)], (128,)),
    "accerl-net3": ([(4, 8, 4), (4, 4, 2)], (32,)),
}


def test_the_presets_are_those_that_the_configuration_offers() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
    [row] = [line for line in page.splitlines() if line.startswith("| `policy.architecture` |")]
    assert ", ".join(ARCHITECTURES) in row
    assert set(ARCHITECTURES) == {*_LAYERS, "impala-resnet", "minigrid", "small-cnn", "mlp"}


@pytest.mark.parametrize("name", _LAYERS)
def test_an_image_preset_has_the_layers_of_its_paper(name: str) -> None:
    architecture = _image(name)
    parts = parts_of(architecture)
    convolutions, hidden = _LAYERS[name]
    assert parts.convolutions == tuple(Convolution(*layer) for layer in convolutions)
    assert parts.hidden == hidden
    assert (parts.activation, parts.separate_value) == ("relu", False)
    # weights + biases, layer after layer, for 6 actions
    count, channels, side = 0, 4, 84
    for filters, kernel, stride in convolutions:
        count += filters * (channels * kernel**2 + 1)
        channels, side = filters, (side - kernel) // stride + 1
    [width] = hidden
    count += width * (channels * side**2 + 1) + (6 + 1) * (width + 1)
    assert architecture.parameters == count
    assert name != "nature" or count == 1_687_719  # the known number


def test_the_resnet_has_the_sections_of_its_paper_and_the_parameters_that_follow() -> None:
    architecture = _image("impala-resnet")
    parts = parts_of(architecture)
    # Espeholt et al. 2018, figure 3 right: 16, 32 and 32 channels, two residual blocks each
    assert [section.filters for section in parts.sections] == [16, 32, 32]
    assert [section.blocks for section in parts.sections] == [(16, 16), (32, 32), (32, 32)]
    assert (parts.convolutions, parts.hidden) == ((), (256,))
    assert (parts.activation, parts.separate_value) == ("relu", False)
    first = (4 * 16 * 9 + 16) + 4 * (16 * 16 * 9 + 16)
    second = (16 * 32 * 9 + 32) + 4 * (32 * 32 * 9 + 32)
    third = 5 * (32 * 32 * 9 + 32)
    # 84 pixels become 42, 21 and 11
    heads = (11 * 11 * 32 * 256 + 256) + (256 * 6 + 6) + (256 + 1)
    assert architecture.parameters == first + second + third + heads


@pytest.mark.parametrize(
    ("size", "left"), [((84, 84), (11, 11)), ((36, 50), (5, 7)), ((8, 9), (1, 2)), ((1, 2), (1, 1))]
)
def test_a_section_halves_any_image_and_rounds_up(size, left) -> None:
    architecture = _image("impala-resnet", observation=ObservationSpec.plain((3, *size), "uint8"))
    assert _flat_shape(architecture) == (32 * left[0] * left[1],)


def test_the_mlp_has_two_towers_of_its_own_for_policy_and_value() -> None:
    architecture = _flat()
    parts = parts_of(architecture)
    tower = (4 * 64 + 64) + (64 * 64 + 64)
    assert architecture.parameters == 2 * tower + (64 * 2 + 2) + (64 + 1)
    assert parts.hidden == (64, 64)
    assert (parts.activation, parts.separate_value) == ("tanh", True)


def test_tensor_shapes_name_every_weight_in_the_order_in_which_they_travel() -> None:
    assert list(_image("accerl-net3").tensor_shapes().items()) == [
        ("convolutions.0.weight", (4, 4, 8, 8)),
        ("convolutions.0.bias", (4,)),
        ("convolutions.1.weight", (4, 4, 4, 4)),
        ("convolutions.1.bias", (4,)),
        ("hidden.0.weight", (32, 324)),
        ("hidden.0.bias", (32,)),
        ("policy.weight", (6, 32)),
        ("policy.bias", (6,)),
        ("value.weight", (1, 32)),
        ("value.bias", (1,)),
    ]
    assert list(_flat(hidden=()).tensor_shapes()) == [
        "policy.weight", "policy.bias", "value.weight", "value.bias"
    ]  # fmt: skip
    assert list(_flat(hidden=(8,)).tensor_shapes().items()) == [
        ("hidden.0.weight", (8, 4)),
        ("hidden.0.bias", (8,)),
        ("value_hidden.0.weight", (8, 4)),
        ("value_hidden.0.bias", (8,)),
        ("policy.weight", (2, 8)),
        ("policy.bias", (2,)),
        ("value.weight", (1, 8)),
        ("value.bias", (1,)),
    ]


def test_a_q_head_has_a_value_for_each_action_in_place_of_the_one_of_the_state() -> None:
    base, other = _flat(hidden=(8,)), _flat(hidden=(8,), critic="q")
    assert (base.critic, other.critic) == ("v", "q")
    expected = list(base.tensor_shapes().items())[:-2]
    expected += [("q.weight", (2, 8)), ("q.bias", (2,))]
    assert list(other.tensor_shapes().items()) == expected
    again = Architecture.from_dict(json.loads(json.dumps(other.to_dict())))
    assert again == other
    with pytest.raises(ValueError, match="expected one critic, a layer 'value' or 'q', got both"):
        replace(base, layers=(*base.layers, other.layers[-1]))


def test_normalisers_are_the_first_layers_of_numbers_and_the_last_one_of_the_critic() -> None:
    leaves = {
        "map": LeafSpec((2, 36, 36), "uint8"),
        "room": LeafSpec((4,), "float32", binary=True),
        "speed": LeafSpec((3,), "float32"),
    }
    given = {"normalise_observations": True, "normalise_returns": True}
    made = describe_architecture("nature", observation=ObservationSpec(leaves), actions=2, **given)
    first = {layer.reads[0]: layer.kind for layer in made.layers if layer.reads[0] in leaves}
    assert first == {"map": "scale", "room": "scale", "speed": "normalise"}
    assert made.layers[-1].kind == "denormalise" and made.layers[-1].name == "value"
    shapes = made.tensor_shapes()
    statistics = {name: shape for name, shape in shapes.items() if "mean" in name or "std" in name}
    assert statistics == {
        "speed:input.mean": (3,), "speed:input.std": (3,), "value.mean": (1,), "value.std": (1,)
    }  # fmt: skip
    assert made == Architecture.from_dict(json.loads(json.dumps(made.to_dict())))
    own = ModuleSpec("own:Net", "{}", ObservationSpec(leaves), 2, "v", ())
    users = users_architecture(own, ActionSpec.discrete(2), normalise_observations=True)
    assert [layer.kind for layer in users.layers[:3]] == ["scale", "scale", "normalise"]
    for name, network in (("map", "nature"), ("room", "mlp")):
        spec = ObservationSpec({name: leaves[name]})
        with pytest.raises(ConfigError, match=r"normalise_observations.*nothing to normalise"):
            describe_architecture(network, observation=spec, actions=2, normalise_observations=True)


@pytest.mark.parametrize(
    ("high", "divisor", "in_minigrid"), [(255, 255, 10), (10, 10, 10), (1, 1, 1)]
)
def test_images_are_divided_by_the_largest_number_of_their_space(high, divisor, in_minigrid):
    board = ObservationSpec({"observation": LeafSpec((1, 6, 7), "uint8", high=high)})
    own = ModuleSpec("own:Net", "{}", board, 2, "v", ())
    for architecture, expected in (
        (_flat(observation=board), divisor),
        (_image("minigrid", observation=board), in_minigrid),
        (users_architecture(own, ActionSpec.discrete(2)), divisor),
    ):
        assert architecture.layers[0].factor == pytest.approx(1 / expected)


def test_no_leaf_has_the_name_of_a_layer() -> None:
    speed = ObservationSpec.plain((4,), "float32")
    numbers = ActionSpec.of((ActionPart(shape=(2,), low=(-1.0,) * 2, high=(1.0,) * 2),))
    made = [_image(name) for name in ARCHITECTURES]
    for critic, actions in (("v", numbers), ("q", ActionSpec.discrete(2))):
        P = distribution_of(actions).parameter_count
        own = ModuleSpec("own:Net", "{}", speed, P, critic, ())
        made += [
            _flat(actions=actions, critic=critic, separate_value=True, normalise_returns=True),
            users_architecture(own, actions, normalise_returns=True),
        ]
    for architecture in made:
        layers = {layer.name for layer in architecture.layers}
        space = spaces.Dict({name: spaces.Discrete(2) for name in layers})
        layout = ObservationLayout(space, "Maze", EnvConfig(id="Maze"), num_envs=1)
        assert layers.isdisjoint(layout.spec)


def test_an_architecture_survives_the_way_through_json() -> None:
    for architecture in (_flat(), _image("nature"), _image("impala-resnet")):
        again = Architecture.from_dict(json.loads(json.dumps(architecture.to_dict())))
        assert (again, again.digest()) == (architecture, architecture.digest())


def test_digests_differ_when_anything_but_the_name_differs() -> None:
    base = _image("accerl-net2")
    convolution = Convolution(8, 8, 2)
    changes = [
        {},
        {"observation_shape": (4, 80, 84)},
        {"observation_dtype": "float32"},
        {"observation": ObservationSpec({"observation": _DARK})},
        {"actions": 7},
        {"convolutions": parts_of(base).convolutions[:1]},
        {"convolutions": (convolution, parts_of(base).convolutions[1])},
        {"hidden": (127,)},
        {"hidden": (128, 128)},
        {"activation": "tanh"},
        {"separate_value": True},
        {"sections": (ResidualSection(8, (8,)),)},
        {"sections": (ResidualSection(7, (8,)),)},
        {"sections": (ResidualSection(8, (7,)),)},
        {"sections": (ResidualSection(8, ()),)},
        {"critic": "q"},
        {"normalise_returns": True},
    ]
    variants = [altered(base, **change) for change in changes]
    digests = [variant.digest() for variant in variants]
    assert len(set(digests)) == len(variants)
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in digests)
    assert replace(base, name="mine").digest() == base.digest()


def test_a_digest_is_the_same_in_every_process_and_release() -> None:
    # checkpoints name it: a change here makes every checkpoint foreign
    architecture = build_architecture(
        "any",
        ObservationSpec.plain((2,), "float32"),
        2,
        (),
        (3,),
        activation="tanh",
        separate_value=True,
    )
    root, heads = 2**0.5, '"head": true, "kind": "dense"'
    text = (
        '{"action_spec": {"kind": "discrete", "parts": [{"counts": [2], "dtype": "int64", '
        '"high": [], "low": [], "path": [], "shape": [], "starts": [0]}], "squash": false}, '
        '"layers": ['
        '{"kind": "scale", "name": "input", "reads": ["observation"]}, '
        '{"kind": "flatten", "name": "flatten", "reads": ["input"]}, '
        f'{{"gain": {root}, "kind": "dense", "name": "hidden.0", "reads": ["flatten"], '
        '"units": 3}, '
        '{"kind": "tanh", "name": "hidden.0.tanh", "reads": ["hidden.0"]}, '
        f'{{"gain": {root}, "kind": "dense", "name": "value_hidden.0", "reads": ["flatten"], '
        '"units": 3}, '
        '{"kind": "tanh", "name": "value_hidden.0.tanh", "reads": ["value_hidden.0"]}, '
        f'{{"gain": 0.01, {heads}, "name": "policy", "reads": ["hidden.0.tanh"], "units": 2}}, '
        f'{{"gain": 0.01, {heads}, "name": "value", "reads": ["value_hidden.0.tanh"], '
        '"units": 1}], '
        '"observation": {"leaves": [{"dtype": "float32", "frame_stack": 1, '
        '"name": "observation", "shape": [2]}]}}'
    )
    assert architecture.digest() == hashlib.sha256(text.encode()).hexdigest()[:16]


def test_what_is_no_preset_or_does_not_fit_is_refused_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match="'resnet' is unknown; expected one of nature, accerl"):
        _image("resnet")
    said = r"needs images .*\(17,\); use policy.architecture: auto or mlp"
    with pytest.raises(ConfigError, match=said):
        _image("nature", observation=ObservationSpec.plain((17,), "float32"))


def test_the_smallest_image_that_fits_leaves_one_pixel() -> None:
    # 3 <- 3x3 stride 1; (3-1)*2+4 = 8 <- 4x4 stride 2; (8-1)*4+8 = 36 <- 8x8 stride 4
    smallest = _image("nature", observation=ObservationSpec.plain((1, 36, 36), "uint8"))
    assert _flat_shape(smallest) == (64,)
    for side, met in (
        ((35, 35), r"convolutions\.2 would meet 2×2"),
        ((7, 84), r"36×36 .*\(1, 7, 84\).* convolutions\.0 would meet 7×84"),
        ((16, 16), r"convolutions\.1 would meet 3×3 .*policy.architecture: auto"),
    ):
        with pytest.raises(ConfigError, match=met):
            _image("nature", observation=ObservationSpec.plain((1, *side), "uint8"))


def test_versions_are_ordered_by_generation_then_version_after_nothing() -> None:
    in_order = [PolicyVersion(), PolicyVersion(0, 0), PolicyVersion(0, 9), PolicyVersion(1, 3)]
    for older, newer in itertools.combinations(in_order, 2):
        assert older < newer
    assert PolicyVersion() == PolicyVersion(-1, -1)
