from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from aclearn.config import EnvConfig
from aclearn.distributions import distribution_of
from aclearn.envs import read_spec
from aclearn.envs.leaf_layouts import ImageLayout
from aclearn.envs.spaces import read_actions
from aclearn.errors import EnvironmentFailure
from tests.support.env_specs import plain_spec

Box = gymnasium.spaces.Box
B = 3


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
    layout = ImageLayout("screen", shape, num_envs=B, frame_stack=frame_stack)
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


def test_bounds_that_no_number_reaches_are_none_and_without_bounds_nothing_is_squashed():
    space = Box(np.float32(-3.4e38), np.float32(3.4e38), (1,), np.float32)
    (taken,) = read_actions(space, "x").to_env(np.array([[7.0]], np.float32))
    assert taken.tolist() == [7.0]
    with pytest.raises(EnvironmentFailure, match=r"Reacher: env\.squash_actions .* have none; set"):
        read_actions(space, "Reacher", squash=True)
    with pytest.raises(EnvironmentFailure, match=r"Reacher: env\.squash_actions .* have no Box"):
        read_actions(gymnasium.spaces.Discrete(2), "Reacher", squash=True)


_UNSUPPORTED = "actions are not supported: "
_SEQUENCE = gymnasium.spaces.Tuple([gymnasium.spaces.Sequence(Box(0, 1))])
_NUMBERED = gymnasium.spaces.Dict({0: Box(0, 1), 1: Box(0, 1)})


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (Box(-1, 1, (2,), np.int32), f"Box {_UNSUPPORTED}Box"),
        (gymnasium.spaces.Text(4), f"Text {_UNSUPPORTED}Text"),
        (gymnasium.spaces.Dict({"a": _SEQUENCE}), rf"Sequence {_UNSUPPORTED}Seq.*\(in a\.0\)"),
        (gymnasium.spaces.Dict({"a": _NUMBERED}), r"Dict actions have the key 0 \(in a\)"),
        (gymnasium.spaces.Dict({}), "have nothing to choose"),
    ],
)
def test_other_actions_are_refused_by_name(space, said):
    with pytest.raises(EnvironmentFailure, match=f"environment Reacher: .*{said}"):
        read_actions(space, "Reacher")


class Painter(gymnasium.Env):
    observation_space = Box(0, 255, (8, 9, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)


def test_the_specification_of_an_environment():
    assert read_spec(EnvConfig(id="CartPole-v1")) == plain_spec((4,), "float32", 2, 1)
    painter = EnvConfig(id=f"{__name__}:Painter", frame_stack=2)
    assert read_spec(painter) == plain_spec((6, 8, 9), "uint8", 3, 2)
