"""What ranks agree on between batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from aclearn.learning import StepAccount
from aclearn.learning.ranks import Group
from services.trainer.rounds import Rounds


class Twins(Group):
    """Two ranks that say the same; calls `at[n]` within the n-th exchange."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.exchanges = 0
        self.at: dict[int, Callable[[], None]] = {}

    def gather(self, tensor: Tensor) -> list[Tensor]:
        self.exchanges += 1
        if (meanwhile := self.at.pop(self.exchanges, None)) is not None:
            meanwhile()
        return [tensor, tensor]


def test_what_is_set_during_a_meeting_is_followed_by_all_ranks_in_the_next_one() -> None:
    group, followed, copied = Twins(), list[Mapping[str, float]](), list[str]()
    rounds = Rounds(
        group,
        StepAccount(policy="default"),
        torch.device("cpu"),
        mark=lambda: (0, 0),
        before_copies=lambda: None,
        follow=followed.append,
    )

    def meanwhile() -> None:  # as the thread of the socket
        rounds.set(learning_rate=0.5)
        rounds.when_whole(lambda: copied.append("later"))

    rounds.set(learning_rate=0.25)
    group.at[3] = meanwhile  # behind the lengths, within the bytes
    rounds.meet(True)
    assert (followed, copied) == ([{"learning_rate": 0.25}], [])
    rounds.meet(True)
    assert (followed[1:], copied) == ([{"learning_rate": 0.5}], ["later"])
    rounds.meet(True)  # there is nothing to tell
    assert len(followed) == 2
