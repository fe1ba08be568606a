from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest

from tests.support.finrl_golden import EPISODES, FILE, STEPS, actions, batch_of

_ALL = np.ones(1, np.bool_)
#: FinRL's unit of rewards: 2^-11 of the change of the value.
_SCALE = 2.0**-11


def _golden(name: str) -> list[dict[str, Any]]:
    with FILE.open() as file:
        return [row for row in csv.DictReader(file) if row["episode"] == name]


@pytest.mark.parametrize("name", EPISODES)
def test_with_its_faults_episodes_are_those_of_finrl(name: str) -> None:
    batch, golden = batch_of(name, finrl_faults=True), {int(r["step"]): r for r in _golden(name)}
    moves = actions(EPISODES[name][0], 20)
    for step, action in zip(range(STEPS), moves, strict=False):
        result = batch.step(action[None], _ALL)
        if (row := golden.get(step)) is None:
            continue
        assert batch.accounts.shares[0].tolist() == [float(s) for s in row["shares"].split()]
        assert batch.values[0] == pytest.approx(float(row["value"]), abs=1e-6)
        assert batch.accounts.cash[0] == pytest.approx(float(row["cash"]), abs=1e-6)
        reward = result.rewards[0] * batch.rules.initial_cash * _SCALE
        assert reward == pytest.approx(float(row["reward"]), abs=1e-6)
    assert result.ended.all()


def test_the_figures_of_finrl_as_it_is_come_out() -> None:
    # float32 there, and float64 here
    batch, rewards, values = batch_of("plain", finrl_faults=True), [], []
    for _, action in zip(range(STEPS), actions(2024, 20), strict=False):
        rewards.append(batch.step(action[None], _ALL).rewards[0] * 1e6 * _SCALE)
        values.append(batch.values[0])
    assert [values[step - 1] for step in (1, 100, 500, 999, 1000)] == pytest.approx(
        [999979.6504, 1009057.4674, 1047880.4478, 1290526.0996, 1293490.0801], rel=1e-6
    )
    millionth = 1e-6 * 1e6 * _SCALE  # of the account, in rewards
    assert [sum(rewards), rewards[-1]] == pytest.approx([179.41819, 37.559738], abs=millionth)


def test_without_its_faults_the_cash_stays_and_the_last_reward_is_its_own() -> None:
    with_faults, without = (batch_of("poor", finrl_faults=faults) for faults in (True, False))
    least = {True: np.inf, False: np.inf}
    for _, action in zip(range(STEPS), actions(EPISODES["poor"][0], 20), strict=False):
        before = without.values[0]
        for faults, batch in ((True, with_faults), (False, without)):
            result = batch.step(action[None], _ALL)
            least[faults] = min(least[faults], batch.accounts.cash[0])
    assert least[True] < 0.0 <= least[False]
    assert result.rewards[0] == (without.values[0] - before) / 20_000.0
