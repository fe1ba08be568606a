"""Playing whole episodes: which are counted, in what order, and a policy's state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from pettingzoo import ParallelEnv

from aclearn.config import Config, EnvConfig, config_of_keys
from aclearn.envs.factory import make_vector_env, read_spec
from aclearn.errors import ArgumentError, EnvironmentFailure
from aclearn.types import OBSERVATION, ActionSpec, EnvSpec, PolicyOutput, Visited
from services.evaluator.chooser import Chooser
from services.evaluator.evaluate import Evaluation
from services.evaluator.play import Played, Player, episodes_of, play, players_of, visit
from services.evaluator.saved_policy import SavedPolicy, SavedRun

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


def _saved(**kwargs) -> SavedRun:
    config = Config(env=EnvConfig(id=f"{__name__}:Parity", kwargs=kwargs))
    return _alone(config, ActionSpec.discrete(2))


def _alone(config: Config, action: ActionSpec) -> SavedRun:
    return SavedRun(config, None, {"default": _of(config, action, read_spec(config.env))})


def _of(config: Config, action: ActionSpec, spec: EnvSpec, name: str = "default") -> SavedPolicy:
    acting = SimpleNamespace(action_spec=action, state=())
    trained = SimpleNamespace(acting=lambda: acting)
    return SavedPolicy(config, spec, trained, {}, None, name)


def _play(run: SavedRun, policy, *, greedy: bool, **keys) -> Played:
    players = players_of(run, greedy=greedy, instead={"default": policy})
    return play(run, players, seed=_SEED, **keys)["default"]


def _visit(run: SavedRun, policy, count: int, monkeypatch) -> Visited:
    monkeypatch.setattr(SavedPolicy, "executable", lambda saved: policy)
    return visit(run, "default", count=count, seed=_SEED)


@pytest.mark.parametrize("greedy", [True, False])
def test_each_environment_plays_its_share_from_a_start_without_a_memory(greedy) -> None:
    played = _play(_saved(), ParityPolicy(), episodes=_ENVS + 4, greedy=greedy)
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
    played = _play(
        _saved(length=10**9),
        ParityPolicy(),
        episodes=_ENVS + 4,
        greedy=True,
        most_steps=30,
        progress=lambda of: seen.append((len(of["default"].returns), of["default"].running)),
    )
    assert (played.lengths, played.returns, played.cut) == ([30] * _ENVS, [30.0] * _ENVS, _ENVS)
    assert seen == [*((0, t) for t in range(1, 30)), (_ENVS, 30)]


def test_episodes_that_end_at_the_limit_by_themselves_are_played_to_their_number() -> None:
    saved, episodes = _saved(length=30), 2 * _ENVS
    played = _play(saved, ParityPolicy(), episodes=episodes, greedy=True, most_steps=30)
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


def test_visited_observations_are_every_fifth_of_each_game_in_order_of_time(monkeypatch) -> None:
    visited = _visit(_saved(length=100), Even(), 40, monkeypatch)
    expected = [[_SEED + b, t] for t in (0, 5, 10) for b in range(_ENVS)]
    expected_array = np.array(expected[:40], np.float32)
    np.testing.assert_array_equal(visited.observations["observation"], expected_array)


def test_of_a_policy_with_memory_sequences_are_visited_with_the_state_before_them(
    monkeypatch,
) -> None:
    saved = _saved(length=100)
    saved.policies["default"].architecture.state = (1,)
    visited = _visit(saved, ParityPolicy(), 32 * 24, monkeypatch)
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
    short.policies["default"].architecture.state = (1,)
    visited = _visit(short, ParityPolicy(), 32 * 16, monkeypatch)
    # the 11th of 11 steps shows the end of an episode, where no action is taken
    assert visited.valid is not None
    np.testing.assert_array_equal(visited.by_time(visited.valid)[:, 3], np.arange(32) % 11 != 10)


class Indifferent:
    """All actions are as probable."""

    def step(self, observations, state=()):
        return PolicyOutput(np.zeros((len(observations[OBSERVATION]), 6), np.float32))


def test_what_is_not_allowed_is_never_played(monkeypatch) -> None:
    # a closed gate is a fault of the environment, of which none is forgiven
    config = config_of_keys(
        {
            "env.id": "tests.support.space_envs:Gates",
            "env.action_mask": "info",
            "actors.max_env_faults": 0,
        }
    )
    saved = _alone(config, ActionSpec.discrete(6))
    for greedy in (True, False):
        played = _play(saved, Indifferent(), episodes=3, greedy=greedy)
        assert played.lengths == [8] * 3
    visited = _visit(saved, Indifferent(), 40, monkeypatch)
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
        players = {"default": Player(EitherWay(), chooser)}
        *_, last = episodes_of({"default": env}, players, episodes=7, seed=seed)
        return last["default"].returns

    first, again, other = returns(5), returns(5), returns(6)
    env.close()
    assert first == again != other
    assert len(first) == 7


class Repeats:
    """The most probable action is the one that is shown."""

    def step(self, observations, state=()):
        return PolicyOutput(50.0 * observations[OBSERVATION])


class Never(Repeats):
    """The most probable action is another one than is shown."""

    def step(self, observations, state=()):
        return PolicyOutput(50.0 * np.roll(observations[OBSERVATION], 1, axis=1))


def test_several_policies_play_together_and_each_has_its_returns_and_lengths() -> None:
    keys = {"env.id": "tests.support.agents_env:Uneven"}
    policies = {"policies.first.agents": "long", "policies.second.agents": "short"}
    config = config_of_keys({**keys, **policies})
    specs = read_spec(config.env, patterns=config.patterns).by_policy(config.patterns)
    saved = {
        name: _of(config.of_policy(name), spec.action, spec, name) for name, spec in specs.items()
    }
    run = SavedRun(config, SimpleNamespace(path="1.json"), saved)
    players = players_of(run, greedy=True, instead={"first": Repeats(), "second": Never()})
    played = play(run, players, episodes=_ENVS + 3, seed=_SEED)
    first, second = played["first"], played["second"]
    assert first.returns == first.lengths == [8] * (_ENVS + 3)
    assert (second.returns, second.lengths) == ([0.0] * (_ENVS + 3), [4] * (_ENVS + 3))
    cut = play(run, players, episodes=2, seed=_SEED, most_steps=6)
    assert (cut["first"].lengths, cut["first"].cut) == ([6, 6], 2)
    assert (cut["second"].lengths, cut["second"].cut) == ([4, 4], 0)
    for name, words in ((None, "several policies"), ("third", "no policy 'third'")):
        with pytest.raises(ArgumentError, match=f"{words}; name one of first, second"):
            run.policy(name)
    swapped = replace(run, policies={"first": saved["second"], "second": saved["first"]})
    with pytest.raises(EnvironmentFailure, match=r"the policy first was trained on"):
        play(swapped, players, episodes=1, seed=_SEED)


class Respawns(ParallelEnv):
    """Two agents of which each comes back a step after its death; one always lives."""

    metadata: ClassVar[dict[str, str]] = {"name": "respawns"}
    lives: ClassVar[dict[str, int]] = {"a": 10, "b": 15}

    def __init__(self) -> None:
        self.possible_agents = list(self.lives)

    def observation_space(self, agent):
        return gymnasium.spaces.Box(0, 1, (2,))

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, list(self.lives)
        self.born = dict.fromkeys(self.lives, 0)
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {}

    def step(self, actions):
        acted = list(self.agents)
        self.t += 1
        dies = {a: self.t - self.born[a] == self.lives[a] for a in acted}
        comes = [a for a in self.lives if a not in acted]
        for agent in comes:
            self.born[agent] = self.t
        self.agents = [a for a in self.lives if a in comes or (a in acted and not dies[a])]
        seen = [a for a in self.lives if a in acted or a in comes]
        return (
            {a: np.zeros(2, np.float32) for a in seen},
            {a: float(a in acted) for a in seen},
            {a: dies.get(a, False) for a in seen},
            dict.fromkeys(seen, False),
            {a: {} for a in seen},
        )


def test_a_world_in_which_agents_come_back_for_ever_is_cut() -> None:
    config = config_of_keys({"env.id": f"{__name__}:Respawns"})
    run = _alone(config, ActionSpec.discrete(2))
    players = players_of(run, instead={"default": EitherWay()})
    played = play(run, players, episodes=2, seed=1, most_steps=40)["default"]
    assert {10, 15} <= set(played.lengths) and max(played.lengths) == 15
    assert 0 < played.cut <= 4
