"""The resident market against the NumPy one, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

resident = pytest.importorskip("aclearn.resident")
from aclearn.envs.trading import TradingEnv, TradingVectorEnv, trading_batch  # noqa: E402
from aclearn.envs.trading.mdp import (  # noqa: E402
    Accounts,
    account_features,
    fill,
    orders_of,
)
from aclearn.errors import AclearnError  # noqa: E402
from aclearn.policies import describe_architecture  # noqa: E402
from aclearn.resident.policy_rollout import PolicyRollout  # noqa: E402

_ARGUMENTS: dict[str, Any] = {
    "market": {"synthetic": {"stocks": 3, "days": 400, "seed": 6}},
    "periods": {"train": ["2021-01-04", "2021-06-30"]},
    "indicators": ["macd", "cci_14"],
    "turbulence_threshold": 8.0,
    "window": 30,
    "random_accounts": True,
    "initial_cash": 60_000.0,
    "least_order": 3,
    "fill_at": "open",
}


class _NumpyReference:
    """The decision process of `aclearn.envs.trading.mdp`, from a resident state."""

    def __init__(self, **arguments: Any) -> None:
        self._batch = trading_batch(num_envs=1, **arguments)
        self.time_limit = self._batch.steps
        self.turbulent = self.short_of_cash = 0

    def step(self, state: Any, actions: Any) -> Any:
        market, rules = self._batch.prepared, self._batch.rules
        bars, accounts = state["bar"], Accounts(state["cash"], state["shares"])
        turbulent = market.turbulent[bars]
        orders = np.where(turbulent[:, None], -accounts.shares, orders_of(actions, rules))
        self.turbulent += int(turbulent.sum())
        prices = market.fills[bars + 1]
        wanted = (np.maximum(orders, 0.0) * prices).sum(axis=1)
        self.short_of_cash += int((wanted > accounts.cash).sum())
        after = fill(accounts, orders, prices, rules).accounts
        closes = market.prices[bars + 1]
        change = after.value(closes) - accounts.value(market.prices[bars])
        seen = np.concatenate(
            [account_features(after, closes, rules), self._batch.market_part[bars + 1]], axis=1
        )
        return resident.ReferenceStep(
            {"bar": bars + 1, "cash": after.cash, "shares": after.shares},
            seen,
            change / rules.initial_cash,
            np.zeros(len(bars), np.bool_),
        )


def test_each_step_is_that_of_the_numpy_market() -> None:
    reference = _NumpyReference(**_ARGUMENTS)
    env = resident.find_env("Trading", _ARGUMENTS)
    report = resident.check_resident(
        env,
        reference,
        envs=300,
        tolerance={"cash": 1e-6, "shares": 0.0, "observation": 1e-5, "reward": 1e-6},
    )
    assert report.episodes >= 300 and report.excluded == 0
    # the cases that are told apart have been met
    assert min(reference.turbulent, reference.short_of_cash) > 50


def test_an_episode_goes_as_in_the_gymnasium_environment() -> None:
    arguments = {**_ARGUMENTS, "window": None, "random_accounts": False}
    envs = resident.make("Trading", envs=2, device="cpu", threads=1, **arguments)
    single = TradingEnv(**arguments)
    expected, _ = single.reset(seed=0)
    np.testing.assert_allclose(envs.reset()[1].numpy(), expected, rtol=1e-6)
    rng, ended, steps = np.random.default_rng(0), False, 0
    while not ended:
        action = rng.uniform(-1.0, 1.0, 3).astype(np.float32)
        expected, reward, _, ended, _ = single.step(action)
        seen, rewards, terminated, truncated = envs.step(torch.from_numpy(np.stack([action] * 2)))
        np.testing.assert_allclose(seen[1].numpy(), expected, rtol=1e-5, atol=1e-6)
        assert float(rewards[1]) == pytest.approx(reward, abs=1e-6)
        assert bool(truncated[1]) == ended and not terminated.any()
        steps += 1
    assert steps == len(single.batch.prepared.times) - 1
    envs.close()


def test_starts_are_those_of_the_numpy_market() -> None:
    envs = resident.make("Trading", envs=5000, device="cpu", threads=1, **_ARGUMENTS)
    envs.reset()
    state = envs.state()
    vector = TradingVectorEnv(num_envs=5000, **_ARGUMENTS)
    vector.reset(seed=1)
    assert set(state["bar"].tolist()) == set(vector.batch.bars.tolist())
    assert set(np.unique(state["shares"])) == set(range(64))
    closes = vector.batch.prepared.prices[state["bar"]]
    worth = (state["cash"] + (state["shares"] * closes).sum(axis=1)) / 60_000.0
    assert 0.95 <= worth.min() < 0.951 and 1.049 < worth.max() <= 1.05001
    envs.close()


@pytest.mark.parametrize("normalises", [False, True])
def test_the_first_layer_reads_the_market_once_for_all_accounts(normalises: bool) -> None:
    env = resident.find_env("Trading", _ARGUMENTS)
    envs = resident.ResidentEnvs(env, envs=64, device="cpu", steps=4, threads=2)
    envs.reset()
    settings = {"hidden": (16, 8), "normalise_observations": normalises}
    architecture = describe_architecture(
        "mlp", observation=envs.spec.observation, actions=envs.spec.action, **settings
    )
    rollouts = [PolicyRollout(envs, architecture) for _ in range(2)]
    assert all(rollout._shared is not None for rollout in rollouts)
    rollouts[1]._shared = None  # the whole layer at each step
    rng, start = np.random.default_rng(0), envs.snapshot()
    for _ in range(2):  # and again with other weights
        weights = {
            name: torch.from_numpy(
                rng.uniform(*((0.2, 1.0) if name.endswith(".std") else (-0.4, 0.4)), shape)
            ).float()
            for name, shape in architecture.tensor_shapes().items()
        }
        parameters = []
        for rollout in rollouts:
            envs.restore(start)
            rollout.refresh(weights)
            rollout._run_in_torch()
            parameters.append(rollout._parameters.clone())
        assert parameters[0].std() > 1e-3
        torch.testing.assert_close(*parameters, rtol=1e-4, atol=1e-4)
    envs.close()


def test_a_market_longer_than_a_rollout_is_read_step_by_step() -> None:
    env = resident.find_env("Trading", _ARGUMENTS)
    envs = resident.ResidentEnvs(env, envs=8, device="cpu", steps=4, threads=1)
    spec = envs.spec
    architecture = describe_architecture("mlp", observation=spec.observation, actions=spec.action)
    assert PolicyRollout(envs, architecture)._shared is None
    envs.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"finrl_faults": True}, "finrl_faults is not there"),
        ({"windows": 3}, "'Trading' cannot be made .*windows.*its arguments are env.kwargs"),
        ({"window": 5000}, "window: expected 1 to"),
        ({"time_limit": 9}, "Trading: time_limit: .*set window instead"),
    ],
)
def test_what_cannot_be_made_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(AclearnError, match=message):
        resident.make("Trading", envs=1, device="cpu", **{**_ARGUMENTS, **changes})
