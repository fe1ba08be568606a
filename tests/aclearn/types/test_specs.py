"""ActionSpec, ObservationSpec and EnvSpec."""

from __future__ import annotations

import json

import numpy as np
import pytest

from aclearn.types import ActionSpec, EnvSpec, LeafSpec, ObservationSpec

_LEAVES = {"screen": LeafSpec((12, 84, 80), "uint8", 4), "joints": LeafSpec((17,), "float32")}


def test_a_specification_survives_json_in_the_order_of_its_leaves():
    for leaves in (_LEAVES, dict(reversed(_LEAVES.items()))):
        spec = EnvSpec(ObservationSpec(leaves), ActionSpec(5, start=-2), "beware")
        back = EnvSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
        assert back == spec
        assert list(back.observation) == list(leaves)


def test_sampled_actions_become_those_of_the_environment():
    taken = ActionSpec(3, start=-1).to_env(np.array([0, 2, 1], np.int32))
    assert taken.tolist() == [-1, 1, 0]
    assert taken.dtype == np.int64


def test_a_leaf_knows_its_newest_and_older_frames():
    screen, joints = _LEAVES.values()
    stack = np.arange(12)
    assert stack[screen.newest].tolist() == [9, 10, 11]
    assert stack[screen.older].tolist() == list(range(9))
    assert screen.nbytes == 12 * 84 * 80
    assert np.arange(17)[joints.newest].tolist() == list(range(17))
    assert np.arange(17)[joints.older].tolist() == []
    assert joints.nbytes == 68


def test_only_one_leaf_is_the_sole_one():
    assert ObservationSpec.plain((4,), "float32").sole == LeafSpec((4,), "float32")
    with pytest.raises(ValueError, match="expected one leaf, got screen, joints"):
        _ = ObservationSpec(_LEAVES).sole
