"""Resident environments as groups of environments for actors: `env.id: resident:CartPole`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aclearn.config import Config
from aclearn.envs.vector_env import VectorEnv
from aclearn.errors import ConfigError, EnvironmentFailure
from aclearn.resident import ResidentEnv, ResidentWorld, ResidentWorlds, find_env, make
from aclearn.resident.policy_rows import kind_of
from aclearn.resident.rows import Rows
from aclearn.types import OBSERVATION, EnvSpec, EnvStep
from aclearn.types.observation_spec import Observations

#: Nothing says how long a step of a resident environment lasts.
_PICTURES_A_SECOND = 10.0


def read_specs(config: Config) -> dict[str, EnvSpec]:
    """Policy → the specification of its agents, of `env.id: resident:NAME`; compiles nothing.

    Raises:
        AclearnError: there is no such environment, or a key of `env.kwargs` does not fit.
        ConfigError: as of `ResidentGroup`.
    """
    name = config.env.id.partition(":")[2]
    env = find_env(name, config.env.kwargs)
    if isinstance(env, ResidentWorld):
        env.configured("cpu", 1, {})
    else:
        env.configured("cpu", {})
    return _specs(env, name, config.patterns, squash=config.env.squash_actions)


def _specs(
    env: ResidentEnv | ResidentWorld,
    name: str,
    patterns: Mapping[str, Sequence[str]],
    *,
    squash: bool,
) -> dict[str, EnvSpec]:
    """Policy → the specification of its agents.

    Raises:
        ConfigError: as of `ResidentGroup`.
    """
    spec = env.spec(squash=squash)
    if patterns and spec.agents == 1:
        raise ConfigError(
            f"policies: resident:{name} has one agent, and several policies need as many; "
            "remove the section"
        )
    found = spec.by_policy(patterns)
    if isinstance(env, ResidentWorld):
        kinds = {kind.name: kind.agents for kind in env.kinds}
        for policy, its in found.items():
            kind_of(policy, its.agent_names, kinds)
    return found


class ResidentGroup:
    """Resident environments on the CPU; thousands in one actor.

    Args:
        name: of ours, or `module:NAME`.
        patterns: policy → patterns of its agents; empty: one policy plays all.
        squash: as `env.squash_actions`.
        config: of the environment's parameters, and `time_limit`.

    Attributes:
        parts: policy → the rows of its agents: row e·A + a has its agent a of environment e. They
            are reset together, and step once each has sent its actions.

    Raises:
        AclearnError: as of `make`.
        ConfigError: an agent has no policy or several, or one policy's agents have other spaces or
            are of several kinds.
    """

    def __init__(
        self,
        name: str,
        patterns: Mapping[str, Sequence[str]],
        *,
        num_envs: int,
        seed: int,
        threads: int,
        squash: bool,
        config: Mapping[str, Any],
    ) -> None:
        self.envs = make(
            name, envs=num_envs, device="cpu", seed=seed, threads=threads, squash=squash, **config
        )
        self._given = [
            rows.by_agent(torch.zeros_like(rows.buffers.actions[0])) for rows in self.envs.kinds
        ]
        self.parts: dict[str, ResidentVectorEnv] = {}
        for policy, its in _specs(self.envs.env, name, patterns, squash=squash).items():
            [(rows, given)] = (
                (rows, given)
                for rows, given in zip(self.envs.kinds, self._given, strict=True)
                if not its.agent_names or its.agent_names[0] in rows.spec.agent_names
            )
            self.parts[policy] = ResidentVectorEnv(self, policy, its, rows, given)
        self._fresh: set[str] = set()  # parts that have not seen the first observations
        self._sent: set[str] = set()
        self._begun: int | None = None  # the step of the newest reset

    def reset(self, policy: str, seed: int | None) -> None:
        """Begin new episodes, unless another part has for this one."""
        if policy not in self._fresh:
            self._sent.clear()
            self._fresh = set(self.parts)
            if seed is None and self.envs.steps == self._begun:
                self.envs.advance(1)  # the draws of this step would be the same again
            self.envs.reset(seed)
            self._begun = self.envs.steps
        self._fresh.remove(policy)

    def sent(self, policy: str) -> None:
        """The actions of a part are there; those of the last one step the environments."""
        self._sent.add(policy)
        if len(self._sent) < len(self.parts):
            return
        self._sent.clear()
        if isinstance(self.envs, ResidentWorlds):
            names = (rows.name for rows in self.envs.kinds)
            by_kind = dict(zip(names, self._given, strict=True))
            self.envs.step(by_kind if len(by_kind) > 1 else self._given[0])
        else:
            self.envs.step(self._given[0][:, 0])
        self.envs.take_sums()


class ResidentVectorEnv(VectorEnv):
    """The rows of one policy in a `ResidentGroup`.

    Args:
        rows: of the kind of its agents.
        given: the actions of that kind, `[N, A, …]`.
    """

    def __init__(
        self, group: ResidentGroup, policy: str, spec: EnvSpec, rows: Rows, given: Tensor
    ) -> None:
        self._group, self._policy, self._rows, self._given = group, policy, rows, given
        self.spec, self.num_envs = spec, group.envs.num_envs * spec.agents
        names = rows.spec.agent_names
        self._places = [names.index(name) for name in spec.agent_names] or [0]
        self.masks = None
        if rows.buffers.masks is not None:
            self.masks = np.ones((self.num_envs, spec.action.mask_width), np.bool_)
        self.faults: dict[str, int] = {}
        self.between_attempts: Callable[[], None] = lambda: None

    @override
    def reset(self, seed: int | None = None) -> Observations:
        self._group.reset(self._policy, seed)
        self._read_masks()
        return {OBSERVATION: self._own(self._rows.buffers.observations[-1])}

    @override
    def send(self, actions: NDArray[Any]) -> None:
        expected = (self.num_envs, *self.spec.action.shape)
        if actions.shape != expected:
            raise ValueError(f"actions: expected shape {expected}, got {actions.shape}")
        if not self.spec.action.contains(actions).all():
            raise ValueError(f"actions: expected {self.spec.action}, got {actions.tolist()}")
        sampled = torch.from_numpy(actions).to(self._given)
        self._given[:, self._places] = sampled.view(-1, self.spec.agents, *sampled.shape[1:])
        self._group.sent(self._policy)

    @override
    def recv(self) -> EnvStep:
        b = self._rows.buffers
        reached = (b.rewards, b.terminated, b.truncated, b.valid)
        rewards, terminated, truncated, valid = (self._own(tensor[0]) for tensor in reached)
        none = np.zeros(self.num_envs, np.bool_)
        self._read_masks()
        return EnvStep(
            observations={OBSERVATION: self._own(b.observations[-1])},
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            life_lost=none,
            reset=~valid,
            faulted=none.copy(),
        )

    def _read_masks(self) -> None:
        """Set what is allowed now: all to an agent that is out of the game and may take nothing."""
        masks, worlds = self._rows.buffers.masks, self._group.envs
        if masks is None:
            return
        assert isinstance(worlds, ResidentWorlds)  # others have no masks
        self.masks = self._own(masks[-1])
        nothing = ~self.spec.action.allow_something(self.masks)
        if not nothing.any():
            return
        numbers = [self._rows.first_agent + place for place in self._places]
        plays_on = worlds.plays_on[:, numbers].reshape(-1).numpy()
        if (stuck := np.flatnonzero(nothing & plays_on)).size:
            e, a = divmod(int(stuck[0]), self.spec.agents)
            raise EnvironmentFailure(
                f"resident environment {worlds.name}: environment {e}, agent "
                f"{self.spec.agent_names[a]}: its mask allows nothing: {self.masks[stuck[0]]}; "
                "only an agent whose episode has terminated needs no action"
            )
        self.masks[nothing] = True

    def _own(self, rows: Tensor) -> NDArray[Any]:
        """A copy of the rows of this policy."""
        own = self._rows.by_agent(rows)[:, self._places]
        found: NDArray[Any] = own.reshape(self.num_envs, *rows.shape[1:]).numpy()
        return found

    @property
    @override
    def picture_rate(self) -> float:
        return _PICTURES_A_SECOND

    @override
    def picture(self) -> NDArray[np.uint8]:
        return self._group.envs.picture()

    @override
    def close(self) -> None:
        self._group.envs.close()
