"""A vector environment of gymnasium as a group: one object steps all B, without a loop of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from typing_extensions import override

from aclearn.envs.contract import (
    ContractError,
    begin_episode,
    in_range,
    info_of,
    kind,
    range_error,
    step_result,
)
from aclearn.envs.deadline import environment_faults
from aclearn.envs.observation_layout import ObservationLayout
from aclearn.envs.restarting import RestartingEnvs
from aclearn.envs.spaces import read_actions
from aclearn.envs.vector_env import VectorEnv
from aclearn.errors import EnvironmentFailure, words_of
from aclearn.extensions import users_line
from aclearn.types import EnvSpec, EnvStep
from aclearn.types.bounds import LARGEST_ACTION
from aclearn.types.env_spec import Bools
from aclearn.types.observation_spec import Observations

if TYPE_CHECKING:
    from aclearn.config import EnvConfig


class GymnasiumVectorEnv(VectorEnv):
    """B environments that a `gymnasium.vector.VectorEnv` steps, with its next-step autoreset.

    What it gives follows `contract`, as arrays `[B, …]`. If it raises, exits, hangs or breaks the
    contract in any environment, the whole vector environment is closed and made again, and the
    step marks all B as `faulted`. The time limit is that of a call for all.

    Args:
        group: of the one vector environment.

    Raises:
        EnvironmentFailure: its spaces, its size or its autoreset are not supported; it is closed.
    """

    def __init__(self, group: RestartingEnvs, env: EnvConfig, *, num_envs: int) -> None:
        self._group, self.num_envs, name = group, num_envs, group.name
        try:
            made = group.envs[0]
            _check(made, name, num_envs)
            action = read_actions(made.single_action_space, name, squash=env.squash_actions)
            space = made.single_observation_space
            self._layout = ObservationLayout(space, name, env, num_envs=num_envs)
        except BaseException as error:
            group.close()
            if isinstance(error, EnvironmentFailure) or not isinstance(error, environment_faults()):
                raise
            raise EnvironmentFailure(
                f"environment {name}: its spaces cannot be read ({words_of(error)})"
                f"{users_line(error)}"
            ) from error
        self.spec = EnvSpec(self._layout.spec, action, own_form=self._layout.form)
        self.masks: NDArray[np.bool_] | None = None
        self.faults, self.fault_details = group.faults, group.fault_details
        self.between_attempts: Callable[[], None] = lambda: None
        group.between_attempts = lambda: self.between_attempts()
        self._seeded = False
        #: Where the next action is ignored.
        self._idle = self._none()
        self._actions: NDArray[Any] | None = None
        self._taken = 0
        self._observations: Observations = {}

    @override
    def reset(self, seed: int | None = None) -> Observations:
        group = self._group
        if seed is not None:
            group.seed, self._seeded = seed, False
        own = None if self._seeded else group.seed
        fault = group.fault_of(lambda: self._begin(0, own))
        if fault is not None:
            group.replace(0, fault, self._begin)
        self._seeded, self._actions = True, None
        return self._observations

    @override
    def send(self, actions: NDArray[Any]) -> None:
        expected = (self.num_envs, *self.spec.action.shape)
        if actions.shape != expected:
            raise ValueError(f"actions: expected shape {expected}, got {actions.shape}")
        if not self.spec.action.choices_exist(actions).all():
            raise ValueError(f"actions: expected {self.spec.action}, got {actions.tolist()}")
        self._actions = actions

    @override
    def recv(self) -> EnvStep:
        actions, self._actions = self._actions, None
        if actions is None:
            raise RuntimeError("recv() without a send() before it")
        step: list[EnvStep] = []
        fault = self._group.fault_of(lambda: step.append(self._step(actions)))
        if fault is None:
            return step[0]
        self._group.replace(0, fault, self._begin, step=self._taken)
        return EnvStep(
            self._observations,
            np.zeros(self.num_envs, np.float32),
            terminated=self._none(),
            truncated=self._none(),
            life_lost=self._none(),
            reset=~self._none(),
            faulted=~self._none(),
        )

    @property
    @override
    def picture_rate(self) -> float:
        return 0.0

    @override
    def picture(self) -> Any:
        raise EnvironmentFailure(f"environment {self._group.name}: it has no pictures")

    @override
    def close(self) -> None:
        self._group.close()

    def _begin(self, _: int, seed: int | None) -> None:
        """Begin an episode everywhere."""
        shown, _info = begin_episode(self._group.envs[0], seed)
        self._observations = self._read(shown, ~self._none())
        self._idle, self._taken = self._none(), 0

    def _step(self, sampled: NDArray[Any]) -> EnvStep:
        action, idle = self.spec.action, self._idle
        fits = action.contains(sampled)
        if not (fits | idle).all():
            said = f"a sampled action is NaN or beyond {LARGEST_ACTION:g}"
            raise ContractError("action_range", said)
        if not fits.all():  # actions that are ignored
            sampled = np.where(fits[:, None], sampled, np.zeros((), sampled.dtype))
        self._taken += 1
        result = step_result(self._group.envs[0].step(action.to_env_together(sampled)))
        shown, given, terminal, cut, info = result
        rewards = self._numbers(given, "reward").astype(np.float64)
        if not (in_range(rewards) | idle).all():
            raise range_error(rewards, "reward", "reward")
        terminated = self._flags(terminal, "terminated") & ~idle
        truncated = self._flags(cut, "truncated") & ~idle
        ended = terminated | truncated
        observations = self._read(shown, idle)
        self._idle = ended
        return EnvStep(
            observations,
            np.where(idle, 0.0, rewards).astype(np.float32),
            terminated,
            truncated,
            life_lost=self._none(),
            reset=idle,
            faulted=self._none(),
            infos={int(b): _info_of(info_of(info), int(b)) for b in np.flatnonzero(ended)},
        )

    def _read(self, shown: Any, first: Bools) -> Observations:
        batch = self._layout.begin()
        self._layout.write_group(shown, first)
        for error in self._layout.out_of_range().values():
            raise error
        return batch

    def _numbers(self, given: Any, name: str) -> NDArray[Any]:
        array = np.asarray(given)
        if array.shape != (self.num_envs,) or array.dtype.kind not in "biuf":
            said = f"{name} is {kind(given)}, expected {self.num_envs} numbers"
            raise ContractError("reward" if name == "reward" else "flag", said)
        return array

    def _flags(self, given: Any, name: str) -> Bools:
        array = self._numbers(given, name)
        if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
            said = f"{name} is {kind(given)}, expected True or False in each environment"
            raise ContractError("flag", said)
        return array.astype(np.bool_)

    def _none(self) -> Bools:
        return np.zeros(self.num_envs, np.bool_)


def _check(made: Any, name: str, num_envs: int) -> None:
    if made.num_envs != num_envs:
        raise EnvironmentFailure(
            f"environment {name}: it was asked for num_envs = {num_envs} and has {made.num_envs}"
        )
    mode = (made.metadata or {}).get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        raise EnvironmentFailure(
            f"environment {name}: its metadata have the autoreset_mode {mode}, expected "
            "AutoresetMode.NEXT_STEP: an ended episode begins again in the step after it"
        )


def _info_of(infos: Mapping[str, Any], b: int, *, unsaid: bool = False) -> dict[str, Any]:
    """Environment b's info in those of a vector environment, where `_key` says who has `key`.

    Args:
        unsaid: whether b has what no `_key` tells of, as within the mapping of a key that it has.
    """
    found: dict[str, Any] = {}
    for key, values in infos.items():
        if key[:1] == "_" and key[1:] in infos:
            continue
        has = infos.get(f"_{key}")
        if unsaid if has is None else has[b]:
            nested = isinstance(values, Mapping)
            found[key] = _info_of(values, b, unsaid=True) if nested else values[b]
    return found
