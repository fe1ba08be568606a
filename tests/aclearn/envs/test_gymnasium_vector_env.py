from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from aclearn.config import EnvConfig
from aclearn.distributions import distribution_of
from aclearn.envs import VectorEnv, make_vector_env
from aclearn.envs.gymnasium_vector_env import _info_of
from aclearn.errors import EnvironmentFailure
from tests.support.space_envs import Match, Senses

_HERE = __name__


class Parts(Senses):
    """Nested actions of all kinds, and an info at the end."""

    observation_space = spaces.Dict(
        {key: space for key, space in Senses.observation_space.items() if key != "note"}
        | {"bits": spaces.MultiBinary(3), "pair": spaces.MultiDiscrete([2, 4], start=[1, 0])}
    )
    action_space = spaces.Dict(
        {
            "kind": spaces.Discrete(3, start=2),
            "size": spaces.Box(-2.0, 3.0, (2,), np.float32),
            "on": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 2]))),
        }
    )

    def reward(self, action: Any) -> float:
        return float(action["kind"] + action["size"].sum() + action["on"][0][0])

    def shown(self) -> Any:
        shown = {key: part for key, part in super().shown().items() if key != "note"}
        return shown | {
            "bits": np.array([1, 0, 1]),
            "pair": self.np_random.integers([1, 0], [3, 4]),
        }

    def info(self) -> dict[str, Any]:
        return {"steps": self.steps, "by": {"wanted": self.wanted[0]}}


def vector_of(num_envs: int, kind: str) -> SyncVectorEnv:
    made = {"match": Match, "parts": Parts}[kind]
    return SyncVectorEnv([made] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def single_of(kind: str) -> gymnasium.Env[Any, Any]:
    return {"match": Match, "parts": Parts}[kind]()


def _group(env_id: str, num_envs: int, *, max_faults: int = 3, **kwargs: Any) -> VectorEnv:
    settings = {key: kwargs.pop(key) for key in ("frame_stack",) if key in kwargs}
    env = EnvConfig(id=env_id, kwargs=kwargs, **settings)
    return make_vector_env(
        env, num_envs=num_envs, seed=5, step_timeout_s=20.0, max_faults=max_faults
    )


@pytest.mark.parametrize(
    ("vector", "single", "kwargs"),
    [
        (f"vector:{_HERE}:vector_of", f"{_HERE}:single_of", {"kind": "match"}),
        (f"vector:{_HERE}:vector_of", f"{_HERE}:single_of", {"kind": "parts", "frame_stack": 3}),
        ("vector:CartPole-v1", "CartPole-v1", {}),
    ],
)
def test_a_vector_environment_is_a_group_of_single_ones(
    vector: str, single: str, kwargs: dict[str, Any]
) -> None:
    B, rng = 3, np.random.default_rng(0)
    ours, singles = (_group(env_id, B, **kwargs) for env_id in (vector, single))
    assert ours.spec == singles.spec
    seen = [group.reset(seed=7) for group in (ours, singles)]
    distribution = distribution_of(ours.spec.action)
    parameters = np.zeros((B, distribution.parameter_count), np.float32)
    ends = 0
    same_start = vector != "vector:CartPole-v1"  # which seeds its B environments in its own way
    for _ in range(40 if same_start else 1):
        if same_start:
            assert [*seen[0]] == [*seen[1]]
            for leaf in seen[0]:
                np.testing.assert_array_equal(seen[0][leaf], seen[1][leaf])
        actions = distribution.sample(parameters, rng)[0]
        for group in (ours, singles):
            group.send(actions)
        steps = [group.recv() for group in (ours, singles)]
        for name in ("rewards", "terminated", "truncated", "life_lost", "reset", "faulted"):
            fields = [getattr(step, name) for step in steps]
            assert fields[0].dtype == fields[1].dtype
            np.testing.assert_array_equal(*fields)
        assert steps[0].infos == steps[1].infos
        ends += int(steps[0].terminated.sum())
        seen = [step.observations for step in steps]
    assert ends >= 3 or not same_start
    for group in (ours, singles):
        group.close()


class Broken(gymnasium.vector.VectorEnv):
    """Shows the number of its step; in step 3 the first instances do what `fault` says."""

    instances: ClassVar[list[Broken]] = []

    def __init__(self, num_envs: int, fault: str = "", faulty: int = 1, more: int = 0) -> None:
        self.num_envs, self._fault = num_envs + more, fault
        self._is_faulty = len(self.instances) < faulty
        self.instances.append(self)
        self.single_observation_space = spaces.Box(-9.0, 9.0, (1,), np.float32)
        self.single_action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        mode = AutoresetMode.SAME_STEP if fault == "autoreset" else AutoresetMode.NEXT_STEP
        self.metadata = {"autoreset_mode": mode}
        self.steps, self.seed, self.closed = 0, None, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps, self.seed = 0, seed
        return self._shown(), {}

    def step(self, actions: Any) -> Any:
        self.steps += 1
        B, fails = self.num_envs, self.steps == 3 and self._is_faulty
        if fails and self._fault == "raise":
            raise RuntimeError("the market is closed")
        shown, rewards, flags = self._shown(), np.ones(B), np.zeros(B, np.bool_)
        if fails and self._fault == "observation":
            shown[1] = np.nan
        if fails and self._fault == "shape":
            shown = shown[:1]
        if fails and self._fault == "reward":
            rewards[1] = np.inf
        if fails and self._fault == "rewards":
            rewards = rewards[:1]
        if fails and self._fault == "flag":
            return shown, rewards, np.full(B, 2), flags, {}
        return shown, rewards, flags, flags, {}

    def close(self, **_: Any) -> None:
        self.closed = True

    def _shown(self) -> Any:
        return np.full((self.num_envs, 1), self.steps, np.float32)


@pytest.fixture(autouse=True)
def _no_instances() -> None:
    Broken.instances.clear()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("raise", "raised"),
        ("observation", "observation_range"),
        ("shape", "observation_shape"),
        ("reward", "reward_range"),
        ("rewards", "reward"),
        ("flag", "flag"),
        ("action", "action_range"),
    ],
)
def test_a_failure_makes_the_whole_group_again(fault: str, reason: str) -> None:
    group = _group(f"vector:{_HERE}:Broken", 3, fault=fault)
    group.reset(seed=40)
    faulted = []
    for t in range(5):
        actions = np.zeros((3, 1), np.float32)
        if fault == "action" and t == 2:
            actions[1] = np.nan
        group.send(actions)
        step = group.recv()
        faulted.append(step.faulted.tolist())
        assert step.reset.tolist() == faulted[-1]
    assert faulted == [[False] * 3] * 2 + [[True] * 3] + [[False] * 3] * 2
    assert group.faults == {reason: 1}
    first, second = Broken.instances
    assert (first.seed, first.closed, second.closed) == (40, True, False)
    assert second.seed is not None and second.seed != 40
    assert step.observations["observation"].tolist() == [[2.0]] * 3
    group.close()
    assert second.closed


def test_too_many_failures_end_the_group() -> None:
    group = _group(f"vector:{_HERE}:Broken", 2, max_faults=1, fault="raise", faulty=9)
    group.reset()
    with pytest.raises(EnvironmentFailure, match=r"failed 2 times \(raised 2\).*market is closed"):
        for _ in range(20):
            group.send(np.zeros((2, 1), np.float32))
            group.recv()
    group.close()


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        (f"vector:{_HERE}:Broken", {"fault": "autoreset"}, "expected AutoresetMode.NEXT_STEP"),
        (f"vector:{_HERE}:Broken", {"more": 1}, "it was asked for num_envs = 2 and has 3"),
        (f"vector:{_HERE}:single", {}, "the factory returned a Match of tests.*gymnasium.vector"),
        (f"vector:{_HERE}:none", {}, "has no none"),
        ("vector:Pendulum-v1", {}, "gymnasium has no vector environment Pendulum-v1; without vec"),
        ("vector:ale_py:ALE/Pong-v5", {}, "clips rewards, .*; expected env.id: ALE/Pong-v5"),
        ("vector:no_module:Name-v0", {}, "module 'no_module' cannot be imported"),
    ],
)
def test_what_is_no_vector_environment_is_refused(
    env_id: str, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(EnvironmentFailure, match=message):
        _group(env_id, 2, **kwargs)
    assert all(made.closed for made in Broken.instances)


def single(num_envs: int) -> Match:
    return Match()


def test_wrong_choices_and_shapes_are_errors_of_the_caller() -> None:
    group = _group("vector:CartPole-v1", 2)
    group.reset()
    for actions in (np.array([0, 2]), np.zeros(3, np.int32)):
        with pytest.raises(ValueError, match="actions: expected"):
            group.send(actions)
    with pytest.raises(RuntimeError, match="without a send"):
        group.recv()
    group.close()


def test_masks_are_refused_before_the_run() -> None:
    from aclearn.config import Config
    from aclearn.errors import ConfigError

    config = partial(Config.model_validate, {"env": {"id": "vector:a:B", "action_mask": "info"}})
    with pytest.raises((ConfigError, ValueError), match="masks of vector environments"):
        config()


def test_the_figures_of_gymnasiums_wrapper_are_those_of_each_environment_that_has_ended() -> None:
    made = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(made)
    env.reset(seed=1)
    for _ in range(500):
        *_, terminated, _, infos = env.step(np.array([1, 1]))
        if terminated.any():
            break
    env.close()
    found = [_info_of(infos, b) for b in range(2)]
    for b, info in enumerate(found):
        assert ("episode" in info) == terminated[b]
    ended = found[int(terminated.argmax())]["episode"]
    assert {"r", "l", "t"} <= ended.keys() and ended["r"] == ended["l"] > 0
