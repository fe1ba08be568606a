"""MinAtar's Breakout, whose courses are arithmetic on its grid."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from aclearn.envs.minatar import Breakout

_STAY, _LEFT, _RIGHT = 0, 1, 2


def _begun(*, from_left: bool) -> Breakout:
    env = Breakout(sticky=0.0)
    for seed in range(100):
        observation, _ = env.reset(seed=seed)
        if bool(observation[1, 3, 0]) == from_left:
            return env
    raise AssertionError("one of two sides does not occur in a hundred episodes")


def _play(env: Breakout, actions: list[int]) -> tuple[list[tuple[int, int]], list[float], bool]:
    """The ball's row and column after each action, the rewards, and whether it ended there."""
    balls, rewards, ended = [], [], False
    for action in actions:
        assert not ended
        observation, reward, ended, truncated, _ = env.step(np.int64(action))
        assert not truncated
        [ball] = np.argwhere(observation[1]).tolist()
        balls.append(tuple(ball))
        rewards.append(reward)
    return balls, rewards, ended


def test_a_ball_that_the_paddle_does_not_meet_ends_the_episode() -> None:
    balls, rewards, ended = _play(_begun(from_left=True), [_STAY] * 6)
    assert balls == [(4, 1), (5, 2), (6, 3), (7, 4), (8, 5), (9, 6)]
    assert rewards == [0.0] * 6 and ended


def test_under_the_ball_it_goes_on_to_the_wall_and_a_brick() -> None:
    env = _begun(from_left=True)
    # the paddle is at 5, the ball's column before it would be at the bottom
    balls, rewards, ended = _play(env, [_RIGHT] + [_STAY] * 12)
    assert balls[5:] == [(8, 6), (7, 7), (6, 8), (5, 9), (4, 9), (4, 8), (5, 7), (6, 6)]
    assert rewards == [0.0] * 10 + [1.0] + [0.0] * 2 and not ended
    observation = env.step(np.int64(_STAY))[0]
    assert observation[3].sum() == 29 and observation[3, 3, 8] == 0
    assert np.argwhere(observation[2]).tolist() == [[6, 6]]  # where the ball was
    assert np.argwhere(observation[0]).tolist() == [[9, 5]]


def test_at_the_paddles_edge_it_goes_back() -> None:
    env = _begun(from_left=False)
    # from column 9 to the left: at (8, 4) the next would be (9, 3)
    balls, _, ended = _play(env, [_LEFT] + [_STAY] * 7)
    assert balls[4:] == [(8, 4), (8, 3), (7, 4), (6, 5)] and not ended


def test_a_cleared_wall_is_built_again_at_the_bottom() -> None:
    env = _begun(from_left=True)
    env._bricks[:] = 0
    _play(env, [_RIGHT] + [_STAY] * 4)
    assert env._bricks.sum() == 0
    _play(env, [_STAY])
    assert env._bricks.sum() == 30


def test_within_the_wall_one_brick_is_broken() -> None:
    env = _begun(from_left=True)
    # after its brick at (3, 8) the ball comes down at (4, 8); one there is passed, not broken
    env._bricks[5, 7] = 1
    balls, rewards, _ = _play(env, [_RIGHT] + [_STAY] * 12)
    assert balls[10:] == [(4, 8), (5, 7), (6, 6)]
    assert sum(rewards) == 1.0 and env._bricks[5, 7] == 1


def test_a_sticky_action_is_the_one_before() -> None:
    env = Breakout(sticky=0.25)
    env.reset(seed=1)
    repeated = 0
    for _ in range(2_000):
        env._ball, env._down = (5, 5), 1  # never at the bottom
        env._paddle = 5
        env._action = _LEFT
        env.step(np.int64(_RIGHT))
        repeated += env._paddle == 4
    assert abs(repeated / 2_000 - 0.25) < 0.04


def test_it_is_an_environment_and_refuses_what_is_no_probability() -> None:
    check_env(Breakout(), skip_render_check=True)
    with pytest.raises(ValueError, match="sticky: expected a probability below 1, got 1"):
        Breakout(sticky=1.0)
