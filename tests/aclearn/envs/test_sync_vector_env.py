from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from aclearn.types import OBSERVATION

ZEROS = np.zeros(2, np.int64)


def test_the_step_that_ends_an_episode_shows_its_last_observation(scripted, make_group):
    group = make_group(ends_after=3)
    group.reset()
    for _ in range(2):
        group.send(ZEROS)
        step = group.recv()
        assert not step.terminated.any()
        assert not step.reset.any()
    group.send(ZEROS)
    step = group.recv()
    assert step.observations[OBSERVATION].tolist() == [[0, 0, 3], [1, 0, 3]]
    assert step.rewards.tolist() == [3, 3]
    assert step.terminated.tolist() == [True, True]
    assert step.truncated.tolist() == [False, False]
    assert not step.reset.any()


def test_the_step_after_an_end_resets_and_ignores_its_action(scripted, make_group):
    group = make_group(ends_after=3)
    group.reset()
    for action in (0, 1, 2, 0, 1):  # the fourth is the ignored one
        group.send(np.full(2, action))
        step = group.recv()
        if action == 0 and step.reset.any():
            assert step.observations[OBSERVATION].tolist() == [[0, 1, 0], [1, 1, 0]]
            assert step.reset.all()
            assert not step.faulted.any()
            assert step.rewards.tolist() == [0, 0]
            assert not step.terminated.any()
            assert not step.truncated.any()
    assert step.observations[OBSERVATION].tolist() == [[0, 1, 1], [1, 1, 1]]
    assert [env.actions for env in scripted] == [[5, 6, 7, 6]] * 2  # Discrete(3, start=5)


def test_a_truncated_episode_is_not_called_terminated(scripted, make_group):
    group = make_group(ends_after=9, cut_after=2)
    group.reset()
    group.send(ZEROS)
    group.recv()
    group.send(ZEROS)
    step = group.recv()
    assert step.truncated.tolist() == [True, True]
    assert step.terminated.tolist() == [False, False]
    assert step.observations[OBSERVATION].tolist() == [[0, 0, 2], [1, 0, 2]]
    group.send(ZEROS)
    assert group.recv().reset.tolist() == [True, True]


def test_cartpole_goes_as_in_a_plain_loop_over_gymnasium_with_its_time_limit(make_group):
    # Given the obvious loop with every wrapper that gymnasium adds
    B, T, limit, seed = 3, 80, 12, 11
    plain = [gymnasium.make("CartPole-v1", max_episode_steps=limit) for _ in range(B)]
    shown = [env.reset(seed=seed + b)[0] for b, env in enumerate(plain)]
    group = make_group("CartPole-v1", num_envs=B, seed=seed, max_episode_steps=limit)
    np.testing.assert_array_equal(group.reset()[OBSERVATION], np.stack(shown))
    actions = np.random.default_rng(2).integers(0, 2, (T, B))
    ended = [False] * B
    ends = {"terminated": 0, "truncated": 0}
    for t in range(T):
        group.send(actions[t])
        step = group.recv()
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
    # Then both kinds of ending have been compared
    assert min(ends.values()) > 0
    for env in plain:
        env.close()


def test_environment_b_is_seeded_with_seed_plus_b_at_its_first_reset_only(scripted, make_group):
    group = make_group(seed=40, num_envs=3, ends_after=1)
    group.reset()
    for _ in range(4):
        group.send(np.zeros(3, np.int64))
        group.recv()
    group.reset()
    assert [env.seeds for env in scripted] == [[40 + b, None, None, None] for b in range(3)]


def test_a_group_is_a_function_of_its_seed(make_group):
    def play(seed):
        group = make_group("CartPole-v1", num_envs=3, seed=seed)
        shown = [group.reset()[OBSERVATION]]
        for t in range(60):
            group.send(np.array([t % 2, 1, 0]))
            shown.append(group.recv().observations[OBSERVATION])
        return np.stack(shown)

    np.testing.assert_array_equal(play(5), play(5))
    assert (play(5)[0] != play(6)[0]).any()


def test_arrays_of_a_step_are_not_touched_by_later_steps(make_group):
    group = make_group("CartPole-v1", num_envs=3)
    first = group.reset()[OBSERVATION]
    kept = [(first, first.copy())]
    for _ in range(30):
        group.send(np.ones(3, np.int64))
        step = group.recv()
        arrays = [*step.observations.values(), *list(vars(step).values())[1:-1]]
        kept += [(array, array.copy()) for array in arrays]
    assert all((array == copy).all() for array, copy in kept)


def test_the_dtypes_are_those_of_the_contract(make_group):
    group = make_group("CartPole-v1", num_envs=3)
    assert group.reset()[OBSERVATION].dtype == np.float32
    group.send(np.ones(3, np.int64))
    step = group.recv()
    assert (step.observations[OBSERVATION].dtype, step.rewards.dtype) == (np.float32, np.float32)
    flags = (step.terminated, step.truncated, step.life_lost, step.reset, step.faulted)
    assert {flag.dtype for flag in flags} == {np.dtype(np.bool_)}
    assert {flag.shape for flag in flags} == {(3,)}


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (np.zeros(3, np.int64), r"shape \(2,\), got \(3,\)"),
        (np.zeros(2, np.float32), "integers"),
        (np.array([0, 3]), r"expected 0 to 2, got \[0, 3\]"),
        (np.array([-1, 0]), r"expected 0 to 2, got \[-1, 0\]"),
    ],
)
def test_actions_that_do_not_fit_are_refused(scripted, make_group, actions, said):
    group = make_group()
    group.reset()
    with pytest.raises(ValueError, match=said):
        group.send(actions)


def test_recv_without_send_is_a_mistake_of_the_caller(scripted, make_group):
    group = make_group()
    group.reset()
    with pytest.raises(RuntimeError, match="without a send"):
        group.recv()


def test_close_ends_every_environment_and_may_be_called_twice(scripted, make_group):
    group = make_group(num_envs=3)
    group.close()
    group.close()
    assert [env.closed for env in scripted] == [True] * 3


def test_an_episode_that_never_ends_is_left_alone(scripted, make_group):
    group = make_group(ends_after=0)
    group.reset()
    for _ in range(1000):
        group.send(ZEROS)
        step = group.recv()
        assert not (step.terminated | step.truncated | step.reset).any()
    assert step.observations[OBSERVATION][:, 2].tolist() == [1000, 1000]
