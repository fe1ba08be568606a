from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from aclearn.config import EnvConfig
from aclearn.envs import read_spec
from aclearn.envs.contract import ContractError
from aclearn.envs.observation_layout import ObservationLayout
from aclearn.envs.own_observations import OwnObservations
from aclearn.errors import EnvironmentFailure
from aclearn.types import LeafSpec

spaces = gymnasium.spaces
B = 3
DEEP = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (5, 4, 3), np.uint8),
        "dials": spaces.MultiDiscrete([[2, 3]], start=[[4, -5]]),
        "hand": spaces.Tuple([spaces.Discrete(3, start=-1), spaces.Box(-1, 1, (2, 2), np.float64)]),
        "switches": spaces.MultiBinary((2, 2)),
        "value": spaces.Box(0, 9, (), np.int64),
    }
)


def layout_of(space, **options) -> ObservationLayout:
    return ObservationLayout(space, "Maze", EnvConfig(id="Maze", **options), num_envs=B)


def one_hot(index, count):
    return [float(i == index) for i in range(count)]


def test_every_kind_of_leaf_is_written_like_a_loop_over_its_space_says():
    layout = layout_of(DEEP, frame_stack=2)
    assert dict(layout.spec) == {
        "camera": LeafSpec((6, 5, 4), "uint8", 2),
        "dials": LeafSpec((5,), "float32", binary=True),
        "hand.0": LeafSpec((3,), "float32", binary=True),
        "hand.1": LeafSpec((4,), "float32"),
        "switches": LeafSpec((4,), "float32", binary=True),
        "value_": LeafSpec((1,), "float32"),  # networks have a layer of that name
    }
    DEEP.seed(0)
    before = None
    for t in range(4):
        batch = layout.begin()
        shown = [DEEP.sample() for _ in range(B)]
        for b, observation in enumerate(shown):
            (layout.write if t else layout.write_first)(b, observation)
        assert list(batch) == list(layout.spec)
        for b, observation in enumerate(shown):
            frame = np.moveaxis(observation["camera"], 2, 0)
            older = frame if before is None else np.moveaxis(before[b]["camera"], 2, 0)
            np.testing.assert_array_equal(batch["camera"][b], np.concatenate([older, frame]))
            first, second = (observation["dials"] - [[4, -5]])[0]
            assert batch["dials"][b].tolist() == one_hot(first, 2) + one_hot(second, 3)
            assert batch["hand.0"][b].tolist() == one_hot(observation["hand"][0] + 1, 3)
            hand = observation["hand"][1].astype(np.float32)
            assert batch["hand.1"][b].tolist() == hand.flatten().tolist()
            switches = observation["switches"].flatten()
            assert batch["switches"][b].tolist() == switches.astype(float).tolist()
            assert batch["value_"][b].tolist() == [float(observation["value"])]
        assert all(batch[name].dtype == leaf.dtype for name, leaf in layout.spec.items())
        before = shown


def test_a_space_of_one_leaf_is_the_leaf_observation():
    for space, width in ((spaces.Discrete(5), 5), (spaces.MultiBinary(3), 3)):
        leaf = LeafSpec((width,), "float32", binary=True)
        assert dict(layout_of(space).spec) == {"observation": leaf}
    only = spaces.Dict({"image": spaces.Box(0, 255, (4, 4), np.uint8), "text": spaces.Text(4)})
    spec = layout_of(only, ignore=("text",)).spec
    assert dict(spec) == {"image": LeafSpec((1, 4, 4), "uint8")}


def test_an_image_has_the_largest_number_of_its_space() -> None:
    board = spaces.Box(0, np.array([[1, 2, 1], [0, 1, 2]]), dtype=np.uint8)
    layout = layout_of(board)
    assert layout.spec["observation"] == LeafSpec((1, 2, 3), "uint8", high=2)
    own, batch = OwnObservations(layout.spec, layout.form), layout.begin()
    layout.write_first(1, board.high)
    assert own.space.contains(own.show(batch, 1)) and own.space.high.max() == 2
    assert layout_of(spaces.Box(0, 0, (2, 2), np.uint8)).spec["observation"].high == 1


@pytest.mark.parametrize(
    ("shape", "channels"),
    [
        ((7, 7, 20), 20),  # MiniGrid's one-hot wrapper
        ((20, 7, 7), 20),
        ((3, 7, 7), 3),
        ((7, 7, 3), 3),
        ((210, 160, 3), 3),
        ((4, 210, 160), 4),
        ((5, 5, 5), 5),
    ],
)
def test_the_axis_of_channels_is_the_one_beside_two_equal_ones_or_the_shorter(shape, channels):
    spec = layout_of(spaces.Box(0, 255, shape, np.uint8)).spec
    assert spec["observation"].shape[0] == channels


def test_the_axis_of_channels_is_found_or_said():
    space = spaces.Tuple([spaces.Box(0, 255, s, np.uint8) for s in ((4, 6, 5), (9, 4, 5))])
    for channels, shapes in (
        (None, [(4, 6, 5), (5, 9, 4)]),
        ("first", [(4, 6, 5), (9, 4, 5)]),
        ("last", [(5, 4, 6), (5, 9, 4)]),
    ):
        spec = layout_of(space, channels=channels).spec
        assert [leaf.shape for leaf in spec.values()] == shapes


@pytest.mark.parametrize(
    ("changed", "reason", "said"),
    [
        ({"bell": 1}, "observation_keys", "bell"),
        ({"hand": (1,)}, "observation_keys", "hand is a tuple"),
        ({"hand": (2, np.zeros((2, 2)))}, "observation_range", r"hand\.0 is 2"),
        ({"hand": (-2, np.zeros((2, 2)))}, "observation_range", r"hand\.0 is -2"),
        ({"dials": np.array([[4, -2]])}, "observation_range", "dials is"),
        ({"camera": np.zeros((4, 4, 3), np.uint8)}, "observation_shape", "camera has the shape"),
        ({"value": np.zeros(2)}, "observation_shape", "value_ has the shape"),
    ],
)
def test_an_observation_outside_its_space_is_refused_with_the_leaf(changed, reason, said):
    layout = layout_of(DEEP)
    layout.begin()
    layout.write_first(0, DEEP.sample())
    with pytest.raises(ContractError, match=said) as refused:
        layout.write(1, {**DEEP.sample(), **changed})
    assert refused.value.reason == reason


def test_numbers_that_no_run_can_learn_from_are_found_in_any_leaf():
    layout = layout_of(spaces.Dict({name: spaces.Box(-1, 1, (2,)) for name in "ab"}))
    layout.begin()
    for b in range(B):
        layout.write(b, {"a": [0.0, 0.0], "b": [np.nan if b == 1 else 0.0, 0.0]})
    found = layout.out_of_range()
    assert list(found) == [1] and str(found[1]).startswith("b is nan at [0], expected a number")


def test_a_changed_space_is_refused_and_one_with_other_bounds_is_not():
    board = layout_of(spaces.Box(0, 5, (3, 8, 8), np.uint8))
    board.check_space(spaces.Box(0, 9, (3, 8, 8), np.uint8))
    layout = layout_of(spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "n": spaces.Discrete(3)}))
    layout.check_space(spaces.Dict({"a": spaces.Box(-7, 7, (2,)), "n": spaces.Discrete(3)}))
    for other in (
        spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "n": spaces.Discrete(4)}),
        spaces.Dict({"a": spaces.Box(-1, 1, (2,))}),
        spaces.Text(3),
    ):
        with pytest.raises(ContractError) as refused:
            layout.check_space(other)
        assert refused.value.reason == "observation_space"


@pytest.mark.parametrize(
    ("space", "options", "said"),
    [
        (spaces.Text(4), {}, "Text observations are not supported"),
        (spaces.Dict({"a": spaces.Text(4)}), {}, r"Text.*in a; env\.ignore: \[a\] leaves it out"),
        (spaces.Graph(spaces.Box(0, 1), None), {}, "Graph observations are not supported"),
        (spaces.Sequence(spaces.Discrete(2)), {}, "Sequence observations are not supported"),
        (spaces.OneOf([spaces.Discrete(2)]), {}, "OneOf observations are not supported"),
        (spaces.Dict({}), {}, "have nothing for the policy"),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"ignore": ("a",)}, "nothing for the policy"),
        (DEEP, {"ignore": ("hand.2",)}, r"env\.ignore names 'hand\.2', .*hand\.0, hand\.1"),
        (DEEP, {"action_mask": "observation.swiches"}, "env.action_mask names 'swiches'.*switches"),
        (spaces.Box(0, 1, (0,)), {}, "has no numbers"),
        (spaces.Discrete(3), {"frame_stack": 2}, "only images .* Set env.frame_stack: 1"),
        (
            spaces.Dict({"a.b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})}),
            {},
            "two parts 'a.b'",
        ),
        (spaces.Tuple([spaces.Discrete(2)] * 65), {}, "65 leaves, at most 64"),
        (spaces.Dict({"a\n": spaces.Discrete(2)}), {}, "cannot be a leaf's name"),
        (spaces.Dict({"a/b": spaces.Discrete(2)}), {}, "'a/b' cannot be a leaf's name"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(space, options, said):
    with pytest.raises(EnvironmentFailure, match=f"environment Maze: .*{said}"):
        layout_of(space, **options)


class Compass(gymnasium.Env[Any, Any]):
    observation_space = DEEP
    action_space = spaces.Discrete(2)


def test_the_configuration_names_what_the_policy_does_not_see():
    env = EnvConfig(
        id=f"{__name__}:Compass",
        ignore=["camera", "hand"],
        action_mask="observation.switches",
    )
    spec = read_spec(env)
    assert list(spec.observation) == ["dials", "value_"]
    assert spec.masked


def test_the_mask_may_be_a_part_of_what_is_ignored():
    inner = spaces.Dict({"mask": spaces.MultiBinary(2), "story": spaces.Text(4)})
    layout = layout_of(
        spaces.Dict({"a": inner, "b": spaces.Discrete(2)}),
        ignore=("a",),
        action_mask="observation.a.mask",
    )
    assert list(layout.spec) == ["b"]
    assert layout.mask_of({"a": {"mask": [1, 0], "story": "once"}, "b": 1}) == [1, 0]
    with pytest.raises(EnvironmentFailure, match=r"env\.action_mask names 'a\.msk'.*mean a\.mask"):
        layout_of(
            spaces.Dict({"a": inner, "b": spaces.Discrete(2)}),
            ignore=("a",),
            action_mask="observation.a.msk",
        )
