from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from aclearn.config import EnvConfig
from aclearn.distributions import distribution_of
from aclearn.envs import read_spec
from aclearn.envs.contract import ContractError
from aclearn.envs.leaf_layouts import FlatLayout, ImageLayout
from aclearn.envs.spaces import read_actions
from aclearn.errors import EnvironmentFailure
from aclearn.types import ActionSpec
from tests.support.env_specs import plain_spec

Box = gymnasium.spaces.Box
B = 3


def image_layout(shape, frame_stack):
    return ImageLayout("screen", shape, num_envs=B, frame_stack=frame_stack)


def channels_first(frame, shape):
    """The obvious way: (H, W) → (1, H, W), (H, W, C) → (C, H, W), (C, H, W) as it is."""
    if len(shape) == 2:
        return np.array([frame])
    if shape[0] < shape[2]:
        return frame
    return np.array([frame[:, :, c] for c in range(shape[2])])


@pytest.mark.parametrize("frame_stack", [1, 2, 4])
@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3), (6, 5, 1), (3, 6, 5), (4, 4, 4)])
def test_images_are_stacked_like_a_list_of_frames(shape, frame_stack):
    # Given lists of the frames of each episode, filled with the first
    layout = image_layout(shape, frame_stack)
    rng = np.random.default_rng(3)
    stacks = [[] for _ in range(B)]
    for t in range(9):
        batch = layout.begin()
        for b in range(B):
            raw = rng.integers(0, 256, shape, np.uint8)
            frame = channels_first(raw, shape)
            if t == 0 or (t, b) in {(4, 1), (5, 2)}:
                stacks[b] = [frame] * frame_stack
                layout.write_first(b, raw)
            else:
                stacks[b] = [*stacks[b][1:], frame]
                layout.write(b, raw)
        expected = np.stack([np.concatenate(stack) for stack in stacks])
        assert batch.shape == (B, *layout.leaf.shape)
        assert batch.dtype == np.uint8
        np.testing.assert_array_equal(batch, expected)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((4,), np.float64), ((2, 3), np.float32), ((), np.int64), ((7,), np.uint8)]
)
def test_other_boxes_become_float32_vectors(shape, dtype):
    layout = FlatLayout("numbers", shape, num_envs=B)
    shown = (np.arange(max(1, int(np.prod(shape)))).reshape(shape) + 1).astype(dtype)
    batch = layout.begin()
    for b in range(B):
        layout.write(b, shown)
    assert batch.dtype == np.float32
    assert layout.leaf.dtype == "float32"
    assert batch.tolist() == [[float(i + 1) for i in range(shown.size)]] * B
    assert batch.shape[1:] == layout.leaf.shape


def test_float64_for_float32_is_taken_and_a_list_too():
    layout = FlatLayout("numbers", (2,), num_envs=B)
    batch = layout.begin()
    layout.write(0, np.array([0.5, 0.25], np.float64))
    layout.write(1, [0.75, 1.0])
    assert batch[:2].tolist() == [[0.5, 0.25], [0.75, 1.0]]


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (np.zeros((5, 6), np.uint8), "observation_shape"),
        (np.zeros((1, 1), np.uint8), "observation_shape"),
        (np.uint8(7), "observation_shape"),
        (None, "observation_shape"),
        (np.zeros((6, 5), np.float32), "observation_dtype"),
        (np.full((6, 5), 300, np.uint16), "observation_range"),
    ],
)
def test_an_image_that_is_not_as_promised_is_refused(shown, reason):
    layout = image_layout((6, 5), 2)
    layout.begin()
    for write in (layout.write, layout.write_first):
        with pytest.raises(ContractError) as refused:
            write(1, shown)
        assert refused.value.reason == reason


def test_rows_with_numbers_that_no_run_can_learn_from_are_found():
    layout = FlatLayout("numbers", (2, 2), num_envs=6)
    layout.begin()
    for b, value in enumerate([1e12, np.nan, 1.0, -np.inf, 1e300, -1.0001e12]):
        layout.write(b, np.array([[0.0, 0.0], [value, 0.0]]))
    found = {b: str(error).partition(",")[0] for b, error in layout.out_of_range().items()}
    assert found == {
        1: "numbers is nan at [1",
        3: "numbers is -inf at [1",
        4: "numbers is 1e+300 at [1",
        5: "numbers is -1.0001e+12 at [1",
    }


def test_discrete_actions_give_their_number_and_start():
    assert read_actions(gymnasium.spaces.Discrete(4, start=-1), "x") == ActionSpec.discrete(
        4, start=-1
    )


def test_every_kind_of_actions_is_one_that_its_space_contains():
    deep = gymnasium.spaces.Dict(
        {
            "arm": gymnasium.spaces.Tuple(
                [Box(np.array([-2, 0]), np.array([2, np.inf]), dtype=np.float64), Box(-1, 1, ())]
            ),
            "keys": gymnasium.spaces.MultiBinary((2, 2)),
            "grip": gymnasium.spaces.Discrete(3, start=-1),
            "dials": gymnasium.spaces.MultiDiscrete([[2, 3]], start=[[4, -5]]),
        }
    )
    for space in (deep, *deep.values()):
        spec = read_actions(space, "x")
        distribution = distribution_of(spec)
        parameters = np.full((50, distribution.parameter_count), 1.5, np.float32)
        sampled, _ = distribution.sample(parameters, np.random.default_rng(0))
        assert sampled.shape == (50, *spec.shape) and sampled.dtype == spec.dtype
        taken = spec.to_env(sampled)
        assert len(taken) == 50
        assert all(space.contains(action) for action in taken), taken[0]
    spec = read_actions(deep, "x")
    # as gymnasium orders them: arm, dials, grip, keys
    assert spec.counts == (2, 3, 3, 2, 2, 2, 2) and spec.numbers == 3


def test_bounds_that_no_number_reaches_are_none():
    space = Box(np.float32(-3.4e38), np.float32(3.4e38), (1,), np.float32)
    (taken,) = read_actions(space, "x").to_env(np.array([[7.0]], np.float32))
    assert taken.tolist() == [7.0]
    with pytest.raises(EnvironmentFailure, match=r"Reacher: env\.squash_actions .* have none; set"):
        read_actions(space, "Reacher", squash=True)


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (Box(-1, 1, (2,), np.int32), "Box"),
        (gymnasium.spaces.Text(4), "Text"),
        (
            gymnasium.spaces.Dict(
                {"a": gymnasium.spaces.Tuple([gymnasium.spaces.Sequence(Box(0, 1))])}
            ),
            r"Sequence.*\(in a\.0\)",
        ),
    ],
)
def test_other_actions_are_refused_by_name(space, named):
    with pytest.raises(EnvironmentFailure, match=f"Reacher.*{named}") as refused:
        read_actions(space, "Reacher")
    assert "actions are not supported" in str(refused.value)


def test_actions_whose_keys_are_numbers_are_refused():
    space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Dict({0: Box(0, 1), 1: Box(0, 1)})})
    with pytest.raises(EnvironmentFailure, match=r"Reacher.*Dict actions have the key 0 \(in a\)"):
        read_actions(space, "Reacher")


def test_actions_without_a_choice_are_refused():
    with pytest.raises(EnvironmentFailure, match=r"Reacher.*have nothing to choose"):
        read_actions(gymnasium.spaces.Dict({}), "Reacher")


def test_a_stack_of_flat_observations_is_refused():
    with pytest.raises(EnvironmentFailure, match=r"env\.frame_stack is 4.*Set env\.frame_stack: 1"):
        read_spec(EnvConfig(id="CartPole-v1", frame_stack=4))


def test_the_specification_of_a_real_environment():
    assert read_spec(EnvConfig(id="CartPole-v1")) == plain_spec((4,), "float32", 2, 1)


def test_the_specification_of_an_image_environment():
    assert read_spec(EnvConfig(id=f"{__name__}:Painter", frame_stack=2)) == plain_spec(
        (6, 8, 9), "uint8", 3, 2
    )


class Painter(gymnasium.Env):
    observation_space = Box(0, 255, (8, 9, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)
