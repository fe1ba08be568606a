from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from aclearn.config import EnvConfig
from aclearn.envs import VectorEnv, make_vector_env


class ScriptedEnv(gymnasium.Env[Any, Any]):
    """Shows [instance, episode, step] and fails as configured.

    The reward of a step is its number in the episode. Instances are numbered from 0 in the order of
    their creation; those below `faulty` fail with `fault` at step `at` of each episode (at 0: in
    reset, -1: in the constructor, -2: in close).
    """

    instances: ClassVar[list[ScriptedEnv]] = []

    def __init__(
        self,
        *,
        ends_after: int = 3,
        cut_after: int = 0,
        fault: str = "",
        at: int = 2,
        faulty: int = 1,
    ) -> None:
        self.number = len(self.instances)
        self.instances.append(self)
        self.action_space = gymnasium.spaces.Discrete(3, start=5)
        self.observation_space = gymnasium.spaces.Box(-1e9, 1e9, (3,), np.float32)
        self.actions: list[int] = []
        self.seeds: list[int | None] = []
        self.closed = False
        self._ends_after, self._cut_after = ends_after, cut_after
        self._fault, self._at = fault if self.number < faulty else "", at
        self._episode, self._step = -1, 0
        if self._at == -1:
            self._fail()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.seeds.append(seed)
        self._episode += 1
        self._step = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, bool, dict[str, Any]]:
        self.actions.append(action)
        self._step += 1
        shown, reward = self._show(), float(self._step)
        if self._step == self._at:
            reward = {"nan reward": np.nan, "inf reward": np.inf, "huge reward": 1.001e12}.get(
                self._fault, reward
            )
        return shown, reward, self._step == self._ends_after, self._step == self._cut_after, {}

    def close(self) -> None:
        self.closed = True
        if self._at == -2:
            self._fail()

    def _show(self) -> Any:
        shown = np.array([self.number, self._episode, self._step], np.float32)
        return self._fail(shown) if self._step == self._at else shown

    def _fail(self, shown: Any = None) -> Any:
        match self._fault:
            case "raise":
                raise RuntimeError("the dice are lost")
            case "exit":
                sys.exit()  # as pygame's environments do when their window closes
            case "interrupt":
                raise KeyboardInterrupt
            case "exit in a busy loop":
                while True:
                    pass
            case "wait for ever":
                threading.Event().wait()
            case "swallow":
                try:
                    threading.Event().wait()
                except Exception:
                    return shown
            case "wrong shape":
                return shown[:1]  # numpy would broadcast it
            case "wrong dtype":
                return shown.astype(np.complex64)
            case "nan observation":
                return np.array([0, np.nan, 0], np.float32)
            case "inf observation":
                return np.array([0, 0, np.inf], np.float32)
        return shown


@pytest.fixture
def scripted() -> Iterator[list[ScriptedEnv]]:
    """The instances of ScriptedEnv made in this test."""
    ScriptedEnv.instances.clear()
    yield ScriptedEnv.instances
    ScriptedEnv.instances.clear()


@pytest.fixture
def make_group() -> Iterator[Callable[..., VectorEnv]]:
    """Makes a group that is closed after the test, by default of ScriptedEnv.

    Its arguments are settings of `EnvConfig`, those of `make_vector_env`, and keyword arguments of
    the environment.
    """
    groups = []

    def make(
        env_id: str | None = None,
        *,
        num_envs: int = 2,
        seed: int = 1,
        step_timeout_s: float = 20.0,
        max_faults: int = 3,
        threads: int = 1,
        **kwargs: Any,
    ) -> VectorEnv:
        settings = {key: kwargs.pop(key) for key in EnvConfig.model_fields if key in kwargs}
        env_id = env_id or f"{ScriptedEnv.__module__}:ScriptedEnv"
        group = make_vector_env(
            EnvConfig(id=env_id, kwargs=kwargs, **settings),
            num_envs=num_envs,
            seed=seed,
            step_timeout_s=step_timeout_s,
            max_faults=max_faults,
            threads=threads,
        )
        groups.append(group)
        return group

    yield make
    for group in groups:
        group.close()
