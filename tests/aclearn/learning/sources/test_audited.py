"""The log of learned batches."""

import logging
import re

import torch

from aclearn.learning import Audited, BatchSource
from tests.aclearn.learning.test_fifo import Given


class Told(Given):
    """Notes which batches were learned."""

    def __init__(self, batches) -> None:
        super().__init__(batches)
        self.learned_batches = []

    def learned(self, batch, errors=None) -> None:
        self.learned_batches.append(batch)


def _logged(caplog) -> list[list[str]]:
    found = re.findall(r"event=batch_learned columns=(\S+)", caplog.text)
    return [columns.split(",") for columns in found]


def test_a_column_that_is_learned_again_in_another_batch_has_the_same_digest(make, caplog):
    caplog.set_level(logging.INFO)
    # Given two batches of 3 x 4 steps, of which the second has a column of the first
    first, second = (make.batch(make.flat, 3, 4, seed=seed) for seed in (1, 2))
    for name in ("actions", "behaviour_log_prob", "rewards"):
        getattr(second, name)[:, 3] = getattr(first, name)[:, 1]
    for name, leaf in second.observations.items():
        leaf[:, 3] = first.observations[name][:, 1]
    inner = Told([first, second])
    source: BatchSource = Audited(inner)
    # When both are taken, nothing is logged; it is when they are learned
    batches = [source.next(0.0, None), source.next(0.0, None)]
    assert source.next(0.0, None) is None and not _logged(caplog)
    for batch in batches:
        source.learned(batch, torch.zeros(3, 4))
    # Then these two columns alone are equal, and the inner source has heard of both
    one, two = _logged(caplog)
    assert len({*one, *two}) == 7 and one[1] == two[3]
    assert inner.learned_batches == [first, second]


def test_each_of_observations_actions_and_rewards_enters_the_digest(make, caplog):
    caplog.set_level(logging.INFO)
    for name in (None, "actions", "behaviour_log_prob", "rewards", "observations"):
        batch = make.batch(make.flat, 3, 4, seed=1)
        if name == "observations":
            next(iter(batch.observations.values()))[3, 2] += 1
        elif name is not None:
            getattr(batch, name)[2, 2] += 1
        Audited(Told([])).learned(batch)
    plain, *changed = _logged(caplog)
    assert len({each[2] for each in (plain, *changed)}) == 5
    assert all(each[:2] + each[3:] == plain[:2] + plain[3:] for each in changed)
