from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from aclearn.types import OBSERVATION


def test_cartpole_goes_as_in_a_plain_loop_over_gymnasium_with_its_time_limit(make_group):
    # Given the obvious loop with every wrapper that gymnasium adds
    B, T, limit, seed = 3, 80, 12, 11
    plain = [gymnasium.make("CartPole-v1", max_episode_steps=limit) for _ in range(B)]
    shown = [env.reset(seed=seed + b)[0] for b, env in enumerate(plain)]
    group = make_group("CartPole-v1", num_envs=B, seed=seed, max_episode_steps=limit)
    first = group.reset()[OBSERVATION]
    np.testing.assert_array_equal(first, np.stack(shown))
    kept = [(first, first.copy())]
    actions = np.random.default_rng(2).integers(0, 2, (T, B))
    ended = [False] * B
    ends = {"terminated": 0, "truncated": 0}
    for t in range(T):
        group.send(actions[t])
        step = group.recv()
        assert (step.observations[OBSERVATION].dtype, step.rewards.dtype) == (np.float32,) * 2
        for flags in (step.terminated, step.truncated, step.life_lost, step.reset, step.faulted):
            assert (flags.dtype, flags.shape) == (np.bool_, (B,))
        kept += [
            (a, a.copy()) for a in (*step.observations.values(), *list(vars(step).values())[1:-1])
        ]
        for b, env in enumerate(plain):
            assert step.reset[b] == ended[b]
            if ended[b]:
                shown_b, reward, terminated, truncated = env.reset()[0], 0.0, False, False
            else:
                shown_b, reward, terminated, truncated, _ = env.step(int(actions[t, b]))
            ended[b] = terminated or truncated
            np.testing.assert_array_equal(step.observations[OBSERVATION][b], shown_b)
            assert step.rewards[b] == reward
            assert step.terminated[b] == terminated
            assert step.truncated[b] == truncated
            ends["terminated"] += terminated
            ends["truncated"] += truncated
    # Then both kinds of ending have been compared, and no step has written into an earlier one
    assert min(ends.values()) > 0
    assert all((array == copy).all() for array, copy in kept)
    for env in plain:
        env.close()


def test_the_step_after_an_end_resets_and_ignores_its_action(scripted, make_group):
    group = make_group(ends_after=3)
    group.reset()
    for action in (0, 1, 2, 0, 1):  # the fourth is the ignored one
        group.send(np.full(2, action))
        step = group.recv()
    assert step.observations[OBSERVATION].tolist() == [[0, 1, 1], [1, 1, 1]]
    assert [env.actions for env in scripted] == [[5, 6, 7, 6]] * 2  # Discrete(3, start=5)


def test_environment_b_is_seeded_with_seed_plus_b_at_its_first_reset_only(scripted, make_group):
    group = make_group(seed=40, num_envs=3, ends_after=1)
    group.reset()
    for _ in range(4):
        group.send(np.zeros(3, np.int64))
        group.recv()
    group.reset()
    assert [env.seeds for env in scripted] == [[40 + b, None, None, None] for b in range(3)]
    group.reset(seed=9)
    assert [env.seeds[-1] for env in scripted] == [9, 10, 11]


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (np.zeros(3, np.int64), r"shape \(2,\), got \(3,\)"),
        (np.zeros(2, np.float32), "integers"),
        (np.array([0, 3]), r"expected 0 to 2, got \[0, 3\]"),
        (np.array([-1, 0]), r"expected 0 to 2, got \[-1, 0\]"),
    ],
)
def test_actions_that_do_not_fit_or_are_missing_are_refused(scripted, make_group, actions, said):
    group = make_group()
    group.reset()
    with pytest.raises(ValueError, match=said):
        group.send(actions)
    with pytest.raises(RuntimeError, match="without a send"):
        group.recv()


def test_close_ends_every_environment_and_may_be_called_twice(scripted, make_group):
    group = make_group(num_envs=3)
    group.close()
    group.close()
    assert [env.closed for env in scripted] == [True] * 3
