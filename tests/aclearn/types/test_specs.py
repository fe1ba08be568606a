"""ActionSpec, ObservationSpec and EnvSpec."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from aclearn.errors import ConfigError
from aclearn.types import ActionSpec, EnvSpec, LeafSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart

_LEAVES = {
    "screen": LeafSpec((12, 84, 80), "uint8", 4, high=9),
    "joints": LeafSpec((17,), "float32"),
}


def test_a_specification_survives_json_in_the_order_of_its_leaves():
    for leaves in (_LEAVES, dict(reversed(_LEAVES.items()))):
        spec = EnvSpec(ObservationSpec(leaves), ActionSpec.discrete(5, start=-2), "beware")
        back = EnvSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
        assert back == spec
        assert list(back.observation) == list(leaves)


def _kind(size: int, count: int, *names: str) -> EnvSpec:
    seen = ObservationSpec.plain((size,), "float32")
    return EnvSpec(seen, ActionSpec.discrete(count), agents=len(names), agent_names=names)


def test_each_policy_has_the_specification_of_its_agents_which_differ_between_policies() -> None:
    tagger, runner = _kind(4, 5, "red_0", "red_1", "red_2"), _kind(6, 3, "blue_0")
    both = replace(tagger, agents=4, agent_names=("red_0", "blue_0", "red_1", "red_2"))
    both = replace(both, kinds=(tagger, runner))
    assert EnvSpec.from_dict(json.loads(json.dumps(both.to_dict()))) == both
    assert both.by_policy({"b": ("blue_*",), "a": ("red_[02]",), "c": ("red_1",)}) == {
        "b": runner,
        "a": _kind(4, 5, "red_0", "red_2"),
        "c": _kind(4, 5, "red_1"),
    }
    assert tagger.by_policy({}) == {"default": tagger}
    with pytest.raises(ConfigError, match=r"policies\.all\.agents: .* same observations, .*\(6,\)"):
        both.by_policy({"all": ("*",)})
    with pytest.raises(ConfigError, match=r"policies\.default\.agents: .* same observations"):
        both.by_policy({})
    other = replace(tagger, kinds=(_kind(4, 5, "red_0"), _kind(4, 6, "red_1")))
    with pytest.raises(
        ConfigError, match=r"same actions, .*: 5 actions of red_0, 6 actions of red_1"
    ):
        replace(other, agent_names=("red_0", "red_1")).by_policy({"all": ("*",)})


def test_a_leaf_knows_its_newest_and_older_frames():
    screen, joints = _LEAVES.values()
    stack = np.arange(12)
    assert stack[screen.newest].tolist() == [9, 10, 11]
    assert stack[screen.older].tolist() == list(range(9))
    assert screen.nbytes == 12 * 84 * 80
    assert np.arange(17)[joints.newest].tolist() == list(range(17))
    assert np.arange(17)[joints.older].tolist() == []
    assert joints.nbytes == 68


def test_parts_become_nested_actions_of_the_environment() -> None:
    arm = ActionPart(("arm", 0), (2,), "float32", low=(-2.0, 0.0), high=(2.0, np.inf))
    grip = ActionPart(("arm", 1), counts=(3,), starts=(5,))
    keys = ActionPart(("keys",), (2, 1), "int8", counts=(2, 2), starts=(0, 0))
    spec = ActionSpec.of((arm, grip, keys))
    assert (spec.kind, spec.shape, spec.dtype, spec.mask_width) == ("mixed", (5,), "float32", 7)
    # choices first: grip, keys, then the arm; -1 and 1 are the bounds where there are both
    sampled = np.array([[2, 1, 0, 0.5, 3.0], [0, 0, 1, -7.0, -1.0]], np.float32)
    first, second = spec.to_env(sampled)
    assert list(first) == ["arm", "keys"] and isinstance(first["arm"], tuple)
    for action, numbers, grips, pressed in (
        (first, [1.0, 3.0], 7, [[1], [0]]),
        (second, [-2.0, 0.0], 5, [[0], [1]]),
    ):
        assert action["arm"][0].tolist() == numbers and action["arm"][0].dtype == np.float32
        assert int(action["arm"][1]) == grips
        assert action["keys"].tolist() == pressed and action["keys"].dtype == np.int8
    back = EnvSpec.from_dict(json.loads(json.dumps(_of(spec).to_dict(), allow_nan=False)))
    assert back == _of(spec) and back.action.to_env(sampled)[0]["arm"][0].tolist() == [1.0, 3.0]


def _of(action: ActionSpec) -> EnvSpec:
    return EnvSpec(ObservationSpec(_LEAVES), action)


def test_squashed_numbers_reach_the_bounds_and_never_pass_them() -> None:
    low, high = (-0.4, 1.0), (0.4, 3.0)
    spec = ActionSpec.of((ActionPart((), (2,), "float32", low=low, high=high),), squash=True)
    far, near = spec.to_env(np.array([[30.0, -30.0], [0.0, 0.5]], np.float32))
    assert far.tolist() == np.array([0.4, 1.0], np.float32).tolist()
    np.testing.assert_allclose(near, [0.0, 2.0 + np.tanh(0.5)], rtol=1e-6)


def test_the_numbers_that_bounds_clip_are_known() -> None:
    # two bounds stand for -1 and 1; one or none stays as it is
    boxes = ActionPart((0,), (3,), "float32", low=(2.0, 1.0, -np.inf), high=(6.0, np.inf, np.inf))
    parts = (ActionPart((1,), counts=(4,), starts=(0,)), boxes)
    actions = np.array([[3, 1.1, 0.9, -9.0], [0, -1.0, 1.0, 9.0], [1, -1.1, 5.0, 0.0]], np.float32)
    expected = [[True, True, False], [False] * 3, [True, False, False]]
    assert ActionSpec.of(parts).clipped(actions).tolist() == expected
    bounded = (parts[0], ActionPart((0,), (1,), "float32", low=(2.0,), high=(6.0,)))
    squashed = ActionSpec.of(bounded, squash=True)
    assert not squashed.clipped(actions[:, :2]).any()


def test_numbers_without_a_bound_and_choices_beyond_their_counts_are_no_actions() -> None:
    spec = ActionSpec.of((ActionPart((), (1,), "float32", low=(-1.0,), high=(1.0,)),))
    actions = np.array([[0.5], [np.nan], [np.inf], [2e6]], np.float32)
    assert spec.contains(actions).tolist() == [True, False, False, False]
    for wrong in actions[1:]:
        with pytest.raises(ValueError, match="actions: expected 1 numbers"):
            spec.to_env(wrong[None])
    spec = ActionSpec.of((ActionPart((), (2,), counts=(3, 2), starts=(0, 0)),))
    actions = np.array([[2, 1], [3, 0], [0, 2], [-1, 0]], np.int32)
    assert spec.contains(actions).tolist() == [True, False, False, False]


def test_a_mask_has_the_choices_of_all_parts_side_by_side() -> None:
    parts = (
        ActionPart(("arm",), (1,), "float32", low=(-1.0,), high=(1.0,)),
        ActionPart(("dials",), (2,), counts=(3, 2), starts=(0, 0)),
    )
    spec = ActionSpec.of(parts)
    masks = np.array([[1, 0, 0, 0, 1], [1, 1, 1, 0, 0], [0, 0, 0, 1, 1]], np.bool_)
    assert spec.allow_something(masks).tolist() == [True, False, False]
    actions = np.array([[0, 1, 0.5], [2, 1, 0.5], [0, 0, 0.5]], np.float32)
    assert spec.allowed(actions, masks[[0, 0, 0]]).tolist() == [True, False, False]
    one = ActionSpec.discrete(3)
    assert one.allowed(np.array([0, 2]), masks[:2, :3]).tolist() == [True, True]
    assert one.allowed(np.array([1, 1]), masks[:2, :3]).tolist() == [False, True]


def test_the_sampled_form_of_an_environments_actions_gives_them_back() -> None:
    number = ActionPart(("n",), (2,), "float32", low=(-2.0, 0.5), high=(2.0, 0.75))
    free = ActionPart(("f",), (), "float64", low=(-np.inf,), high=(np.inf,))
    choice = ActionPart(("c",), counts=(3,), starts=(-1,))
    for squash, parts in ((False, (number, free, choice)), (True, (number, choice))):
        spec = ActionSpec.of(parts, squash=squash)
        rng = np.random.default_rng(1)
        actions = [
            {
                "n": np.array(n, np.float32),
                "f": np.float64(rng.normal()),
                "c": int(rng.integers(-1, 2)),
            }
            for n in ([-2.0, 0.75], [2.0, 0.5], [0.3, 0.61])
        ]
        sampled = spec.from_env(actions)
        assert sampled.shape == (3, *spec.shape)
        for back, action in zip(spec.to_env(sampled), actions, strict=True):
            assert back["c"] == action["c"]
            np.testing.assert_allclose(back["n"], action["n"], rtol=1e-6)
            assert squash or back["f"] == action["f"]
    one = ActionSpec.discrete(4, start=2)
    assert one.to_env(one.from_env([5, 2])) == [5, 2]
