"""Playing whole episodes: which are counted, in what order, and a policy's state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from aclearn.config import Config, EnvConfig, config_of_keys
from aclearn.envs.factory import make_vector_env, read_spec
from aclearn.types import OBSERVATION, ActionSpec, PolicyOutput
from services.evaluator.chooser import Chooser
from services.evaluator.evaluate import Evaluation
from services.evaluator.play import episodes_of, play, visit
from services.evaluator.saved_policy import SavedPolicy

_SEED, _ENVS = 8, 16


class Parity(gymnasium.Env):
    """Shows its seed and the step t; pays 1 for the action t mod 2; ends after `length` steps."""

    observation_space = gymnasium.spaces.Box(0, 1000, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 0) -> None:
        self._length = length

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self._first_seed = seed
        self._t = 0
        return self._shown(), {}

    def step(self, action):
        reward = float(action == self._t % 2)
        self._t += 1
        return (
            self._shown(),
            reward,
            self._t == (self._length or _length(self._first_seed)),
            False,
            {},
        )

    def _shown(self):
        return np.array([self._first_seed, self._t], np.float32)


class ParityPolicy:
    """Counts its steps in its state; its observations do not tell it the action."""

    def step(self, observations, state=()):
        rows = len(observations[OBSERVATION])
        (count,) = state or (np.zeros((rows, 1), np.float32),)
        parameters = np.where(np.arange(2) == count % 2, 50.0, -50.0).astype(np.float32)
        return PolicyOutput(parameters, state=(count + 1,))


def _length(seed: int) -> int:
    return 1 + seed % 4


def _saved(**kwargs) -> SavedPolicy:
    config = Config(env=EnvConfig(id=f"{__name__}:Parity", kwargs=kwargs))
    return _of(config, ActionSpec.discrete(2))


def _of(config: Config, action: ActionSpec) -> SavedPolicy:
    acting = SimpleNamespace(action_spec=action, state=())
    trained = SimpleNamespace(acting=lambda: acting)
    return SavedPolicy(config, read_spec(config.env), trained, {}, None)


@pytest.mark.parametrize("greedy", [True, False])
def test_each_environment_plays_its_share_from_a_start_without_a_memory(greedy) -> None:
    played = play(_saved(), ParityPolicy(), episodes=_ENVS + 4, greedy=greedy, seed=_SEED)
    # four environments play two episodes, with a step between them in which the next one starts
    ends = [
        ((nth + 1) * _length(_SEED + b) + nth, b)
        for b in range(_ENVS)
        for nth in range(2 if b < 4 else 1)
    ]
    assert played.lengths == [_length(_SEED + b) for _, b in sorted(ends)]
    assert played.returns == played.lengths  # every step was paid
    assert played.cut == 0


def test_an_episode_without_end_is_cut_and_takes_the_share_of_its_environment() -> None:
    seen = []
    played = play(
        _saved(length=10**9),
        ParityPolicy(),
        episodes=_ENVS + 4,
        greedy=True,
        seed=_SEED,
        most_steps=30,
        progress=lambda played: seen.append((len(played.returns), played.running)),
    )
    assert (played.lengths, played.returns, played.cut) == ([30] * _ENVS, [30.0] * _ENVS, _ENVS)
    assert seen == [*((0, t) for t in range(1, 30)), (_ENVS, 30)]


def test_episodes_that_end_at_the_limit_by_themselves_are_played_to_their_number() -> None:
    saved, episodes = _saved(length=30), 2 * _ENVS
    played = play(saved, ParityPolicy(), episodes=episodes, greedy=True, seed=_SEED, most_steps=30)
    assert (played.lengths, played.cut) == ([30] * episodes, 0)


def test_a_mean_has_its_standard_error_and_a_deviation_by_name() -> None:
    made = Evaluation([1.0, 2.0, 3.0, 6.0], [1] * 4, Path("1.json"), 5)
    # squares 4, 1, 0, 9 over n - 1 = 3
    assert made.deviation == pytest.approx((14 / 3) ** 0.5)
    assert (made.mean, made.standard_error) == (3.0, pytest.approx((14 / 3) ** 0.5 / 2))
    assert Evaluation([1.0], [1], Path("1.json"), 5).standard_error == 0.0


class Even:
    """Both actions are as probable."""

    def step(self, observations, state=()):
        return PolicyOutput(np.zeros((len(observations[OBSERVATION]), 2), np.float32))


def test_visited_observations_are_every_fifth_of_each_game_in_order_of_time() -> None:
    visited = visit(_saved(length=100), Even(), count=40, seed=_SEED)
    expected = [[_SEED + b, t] for t in (0, 5, 10) for b in range(_ENVS)]
    expected_array = np.array(expected[:40], np.float32)
    np.testing.assert_array_equal(visited.observations["observation"], expected_array)


def test_of_a_policy_with_memory_sequences_are_visited_with_the_state_before_them() -> None:
    saved = _saved(length=100)
    saved.architecture.state = (1,)
    visited = visit(saved, ParityPolicy(), count=32 * 24, seed=_SEED)
    assert (visited.length, visited.sequences, len(visited)) == (32, 24, 32 * 24)
    # 32 steps of each of 16 games, and every fifth time again: then step 160 is the 59th of the
    # second episode, since the first takes 101 with the step in which the second begins
    shown = visited.observations[OBSERVATION].reshape(24, 32, 2)
    assert visited.valid is not None
    valid, (state,) = visited.valid.reshape(24, 32), visited.state
    for k, (first, steps, before) in enumerate(
        [(_SEED + b, range(32), 0) for b in range(_ENVS)]
        + [(_SEED + b, range(59, 91), 59) for b in range(8)]
    ):
        np.testing.assert_array_equal(shown[k], [[first, t] for t in steps])
        assert valid[k].all() and state[k] == [before]
    short = _saved(length=10)
    short.architecture.state = (1,)
    visited = visit(short, ParityPolicy(), count=32 * 16, seed=_SEED)
    # the 11th of 11 steps shows the end of an episode, where no action is taken
    assert visited.valid is not None
    np.testing.assert_array_equal(visited.by_time(visited.valid)[:, 3], np.arange(32) % 11 != 10)


class Indifferent:
    """All actions are as probable."""

    def step(self, observations, state=()):
        return PolicyOutput(np.zeros((len(observations[OBSERVATION]), 6), np.float32))


def test_what_is_not_allowed_is_never_played() -> None:
    # a closed gate is a fault of the environment, of which none is forgiven
    config = config_of_keys(
        {
            "env.id": "tests.support.space_envs:Gates",
            "env.action_mask": "info",
            "actors.max_env_faults": 0,
        }
    )
    saved = _of(config, ActionSpec.discrete(6))
    for greedy in (True, False):
        played = play(saved, Indifferent(), episodes=3, greedy=greedy, seed=_SEED)
        assert played.lengths == [8] * 3
    visited = visit(saved, Indifferent(), count=40, seed=_SEED)
    assert visited.masks is not None and visited.masks.shape == (40, 6)


class EitherWay:
    """Both actions are as probable."""

    def step(self, observations, state=()):
        return PolicyOutput(np.zeros((len(observations[OBSERVATION]), 2), np.float32))


def test_the_same_seed_plays_the_same_episodes_again_in_the_same_environments() -> None:
    config = config_of_keys({"env.id": "CartPole-v1"})
    env = make_vector_env(config.env, num_envs=3, step_timeout_s=30.0, max_faults=0)
    chooser = Chooser.of(config, env.spec.action)

    def returns(seed: int) -> list[float]:
        *_, last = episodes_of(env, EitherWay(), chooser, episodes=7, seed=seed)
        return last.returns

    first, again, other = returns(5), returns(5), returns(6)
    env.close()
    assert first == again != other
    assert len(first) == 7
