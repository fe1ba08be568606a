"""What the updates of members count as."""

from __future__ import annotations

import numpy as np

from aclearn.learning.batched import MemberReports
from aclearn.learning.update_report import APPLIED, ENDS, NEW_STEPS, STEPS
from services.trainer.tally import Made, Tally


def test_an_update_counts_as_applied_or_refused_and_its_new_steps_once() -> None:
    tally, own = Tally(3), np.zeros((2, 3, 9))
    own[:, :2, STEPS] = 8  # the third has nothing to learn
    own[0, :2, NEW_STEPS] = 8
    own[:, 0, APPLIED] = 1  # the gradient of the second is not finite
    own[1, 0, ENDS] = 1
    tally.add(np.array([8, 8, 0]), MemberReports((), (), tuple(own)))
    assert tally.refused_in_a_row.tolist() == [0, 2, 0]
    first, second, third = (tally.take(member) for member in range(3))
    assert first == Made(played=8, learned=8, updates=2, batches=1, ended_batches=1, versions=1)
    assert second == Made(played=8, refused=8, refused_updates=2, batches=1)
    assert third == Made()
