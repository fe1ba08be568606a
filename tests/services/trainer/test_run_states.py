"""States of a run beside a repeated one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aclearn.errors import CheckpointError
from services.trainer.run_states import Comparison, RunStates


def _tensors(weights: list[float], total: float = 0.0) -> dict[str, Any]:
    return {
        "weights/a": np.array(weights, np.float32),
        "totals": np.array([total], np.float32),
        "random/torch": np.zeros(3, np.uint8),
    }


class Learner:
    """Only what is compared."""

    def __init__(self) -> None:
        self.state, self.now = SimpleNamespace(updates=0), _tensors([0.0, 0.0])

    def state_tensors(self) -> dict[str, Any]:
        return self.now


def test_a_distance_is_a_share_of_the_way_and_counts_no_random_numbers() -> None:
    learner: Any = Learner()
    states = RunStates(learner, learner.now)
    learner.now = _tensors([3.0, 4.0])
    there = _tensors([3.0, 4.0]) | {"random/torch": np.ones(3, np.uint8)}
    states.compare("same", 1, there)
    states.compare("near", 1, _tensors([3.0, 5.0]))
    states.compare("other total", 1, _tensors([3.0, 4.0], total=1.0))
    same, near, total = states.comparisons
    assert same == Comparison("same", 1, equal=True, distance=0.0)
    assert not near.equal and near.distance == pytest.approx(1.0 / np.hypot(3.0, 5.0))
    assert (total.equal, total.distance) == (False, 0.0)


def test_a_comparison_is_made_again_until_all_bits_were_equal() -> None:
    learner: Any = Learner()
    states = RunStates(learner, learner.now)
    there = _tensors([1.0, 1.0])
    for weights, equal in (([2.0, 1.0], False), ([1.0, 1.0], True), ([5.0, 5.0], True)):
        learner.now = _tensors(weights)
        states.compare("c", 1, there)
        assert [each.equal for each in states.comparisons] == [equal]


def test_a_state_without_a_tensor_is_named() -> None:
    learner: Any = Learner()
    states = RunStates(learner, learner.now)
    with pytest.raises(CheckpointError, match="000001-1 lacks the tensor totals; it is damaged"):
        states.compare("000001-1", 1, {"weights/a": np.zeros(2, np.float32)})
