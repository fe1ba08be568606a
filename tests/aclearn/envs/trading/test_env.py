from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from aclearn.envs.trading import TradingEnv, TradingVectorEnv
from aclearn.errors import ArgumentError

_ARGUMENTS: dict[str, Any] = {
    "market": {"synthetic": {"stocks": 3, "days": 120, "seed": 1}},
    "periods": {"train": ["2020-03-02", "2020-05-29"]},
    "indicators": ["rsi_14", "macd"],
    "window": 6,
    "random_accounts": True,
}


@pytest.mark.filterwarnings("ignore:.*Box observation space m")  # without bounds
def test_it_is_an_environment_of_gymnasium() -> None:
    env = TradingEnv(**_ARGUMENTS)
    check_env(env, skip_render_check=True)
    assert env.observation_space.shape == (1 + 2 * 3 + 2 * 3,)


def test_an_episode_is_cut_at_its_window_and_tells_its_figures() -> None:
    env = TradingEnv(**_ARGUMENTS)
    env.reset(seed=4)
    ends, total = [], 0.0
    value = env.batch.values[0]
    for _ in range(6):
        _, reward, terminated, truncated, info = env.step(np.array([1.0, -1.0, 0.2], np.float32))
        total += reward
        ends.append((terminated, truncated))
    assert ends == [(False, False)] * 5 + [(False, True)]
    assert set(info) == {"total_return", "costs", "turnover", "equal_weight_return"}
    np.testing.assert_allclose(total * 1e6 / value, info["total_return"])
    faulty = TradingEnv(**_ARGUMENTS, finrl_faults=True)
    faulty.reset(seed=4)
    for _ in range(6):
        _, _, terminated, truncated, _ = faulty.step(np.zeros(3, np.float32))
    assert terminated and not truncated


def test_the_vector_is_what_single_environments_are_step_by_step() -> None:
    B = 3
    vector = TradingVectorEnv(num_envs=B, **_ARGUMENTS)
    singles = [TradingEnv(**_ARGUMENTS) for _ in range(B)]
    seen, _ = vector.reset(seed=11)
    firsts = [env.reset(seed=11 + b)[0] for b, env in enumerate(singles)]
    np.testing.assert_array_equal(seen, firsts)
    rng, ended = np.random.default_rng(0), np.zeros(B, bool)
    for _ in range(20):
        actions = rng.uniform(-1.0, 1.0, (B, 3)).astype(np.float32)
        seen, rewards, terminated, truncated, infos = vector.step(actions)
        for b, env in enumerate(singles):
            if ended[b]:  # the next step resets, and its action is ignored
                expected: Any = (env.reset()[0], 0.0, False, False, {})
            else:
                expected = env.step(actions[b])
            np.testing.assert_array_equal(seen[b], expected[0])
            assert (rewards[b], terminated[b], truncated[b]) == expected[1:4]
            for name, figure in expected[4].items():
                assert infos[f"_{name}"][b] and infos[name][b] == figure
        ended = terminated | truncated
    assert seen.shape == (B, 13)


def test_a_seed_repeats_everything_and_another_does_not() -> None:
    def values(seed: int) -> np.ndarray[Any, Any]:
        vector = TradingVectorEnv(num_envs=4, **_ARGUMENTS)
        vector.reset(seed=seed)
        for _ in range(15):
            vector.step(np.full((4, 3), 0.5, np.float32))
        return vector.batch.values

    np.testing.assert_array_equal(values(3), values(3))
    vector = TradingVectorEnv(num_envs=4, **_ARGUMENTS)
    seen = [vector.reset(seed=seed)[0] for seed in (np.int64(3), [3, 4, 5, 6])]
    np.testing.assert_array_equal(*seen)
    with pytest.raises(ArgumentError, match="seed: expected a number or 4 of them"):
        vector.reset(seed=[1, 2])
    assert (values(3) != values(300)).any()
    assert TradingVectorEnv(num_envs=2, **_ARGUMENTS).metadata["autoreset_mode"] is (
        gymnasium.vector.AutoresetMode.NEXT_STEP
    )
