"""Observations in the environment's own form, read without the environment."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from aclearn.config import EnvConfig
from aclearn.envs.observation_layout import ObservationLayout
from aclearn.envs.own_observations import OwnObservations
from aclearn.errors import ArgumentError
from aclearn.types import ActionSpec, EnvSpec

_B = 3
_SPACES: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-1.0, 1.0, (4,), np.float32),
    "float64 in two axes, the first of length 1": spaces.Box(-1.0, 1.0, (1, 6), np.float64),
    "a single number": spaces.Box(-1.0, 1.0, (), np.float32),
    "integers": spaces.Box(-5, 5, (2, 2), np.int16),
    "bytes that are no picture": spaces.Box(0, 255, (5,), np.uint8),
    "discrete": spaces.Discrete(5, start=-2),
    "discrete of as many as a batch": spaces.Discrete(_B),
    "multi-discrete": spaces.MultiDiscrete([[3, 2], [4, 2]]),
    "multi-binary": spaces.MultiBinary((2, 3)),
    "grey picture": spaces.Box(0, 255, (8, 9), np.uint8),
    "channels last": spaces.Box(0, 255, (8, 9, 3), np.uint8),
    "channels first": spaces.Box(0, 2, (3, 8, 9), np.uint8),
    "as many channels as pixels": spaces.Box(0, 255, (7, 7, 7), np.uint8),
    "nested": spaces.Dict(
        {
            "b": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float32))),
            "a": spaces.Dict({"eye": spaces.Box(0, 255, (6, 7, 3), np.uint8)}),
            "value": spaces.MultiBinary(2),
        }
    ),
}


def _made(space: spaces.Space[Any], **options: Any) -> tuple[ObservationLayout, OwnObservations]:
    """The environment's layout, and what is known of it after a checkpoint."""
    layout = ObservationLayout(space, "Maze", EnvConfig(id="Maze", **options), num_envs=_B)
    spec = EnvSpec(layout.spec, ActionSpec.discrete(2), own_form=layout.form)
    # as a checkpoint has it: sorted, and tuples as lists
    data = json.loads(json.dumps(spec.of_environment(), sort_keys=True))
    again = EnvSpec.of_policy(layout.spec, spec.action, data)
    assert again == spec and again.own_form == layout.form
    return layout, OwnObservations(again.observation, again.form)


@pytest.mark.parametrize("name", _SPACES)
def test_an_observation_and_a_batch_are_read_as_the_actors_read_them(name: str) -> None:
    space = _SPACES[name]
    layout, own = _made(space)
    space.seed(3)
    seen = [space.sample() for _ in range(_B)]
    expected = layout.begin()
    for b, observation in enumerate(seen):
        layout.write_first(b, observation)
        leaves, mask, batched = own.read(observation)
        assert not batched and mask is None and leaves.keys() == expected.keys()
        for leaf, row in expected.items():
            np.testing.assert_array_equal(leaves[leaf], row[b : b + 1])
        shown = own.show(leaves, 0)
        assert own.space.contains(shown)
        for leaf, array in own.read(shown).leaves.items():
            np.testing.assert_array_equal(array, leaves[leaf])
    # as gymnasium's vector environments give them
    batch = concatenate(space, seen, create_empty_array(space, _B))
    leaves, _, batched = own.read(batch)
    assert batched
    for leaf, rows in expected.items():
        np.testing.assert_array_equal(leaves[leaf], rows)


def test_a_stack_of_pictures_has_the_frames_in_front() -> None:
    _, own = _made(_SPACES["channels last"], frame_stack=4)
    frames = np.random.default_rng(0).integers(0, 256, (4, 8, 9, 3), dtype=np.uint8)
    leaf = own.read(frames).leaves["observation"]
    by_hand = np.concatenate([frame.transpose(2, 0, 1) for frame in frames])
    np.testing.assert_array_equal(leaf[0], by_hand)
    np.testing.assert_array_equal(own.show({"observation": leaf}, 0), frames)
    assert own.read(frames[None]).batched and own.space.shape == (4, 8, 9, 3)
    with pytest.raises(ArgumentError, match="4 frames in front, the newest last; got uint8"):
        own.read(frames[0])


def test_parts_that_the_policy_does_not_see_may_be_there_or_not_and_a_mask_is_found() -> None:
    space = spaces.Tuple(
        (
            spaces.Text(5),
            spaces.Box(-1.0, 1.0, (2,), np.float32),
            spaces.Dict({"mask": spaces.MultiBinary(2), "gate": spaces.Discrete(2)}),
        )
    )
    _, own = _made(space, ignore=("0",), action_mask="observation.2.mask")
    whole = ("look", np.zeros(2, np.float32), {"mask": np.array([0, 1], np.int8), "gate": 1})
    leaves, mask, _ = own.read(whole)
    assert [*leaves] == ["1", "2.gate"] and mask.tolist() == [0, 1]
    less = own.show(leaves, 0)
    assert less[2] == {"gate": 1} and own.read(less).mask is None


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("vector", np.zeros(3), r"expected Box\(.*got float64 \(3,\)"),
        ("vector", np.zeros((2, 2, 4)), r"got float64 \(2, 2, 4\)"),
        ("vector", np.zeros((0, 4)), r"got float64 \(0, 4\)"),
        ("vector", ["a"] * 4, "has the dtype <U1"),
        ("vector", {"x": np.zeros(4)}, r"got \{x: float64 \(4,\)\}"),
        ("vector", [[0.0, 0.0], [0.0]], "got no array"),
        ("vector", [0.0, 0.0, np.nan, 0.0], "observation is nan at"),
        ("discrete", 3, "observation is 3, which its space does not have"),
        ("discrete", 1.5, "has the dtype float64, which cannot become int64"),
        ("channels last", np.zeros((8, 9, 3)), "has the dtype float64, which cannot become uint8"),
        ("nested", {"a": {"eye": np.zeros((6, 7, 3), np.uint8)}}, "expected Dict"),
    ],
)
def test_an_observation_of_another_form_is_refused(name: str, given: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        _made(_SPACES[name])[1].read(given)
