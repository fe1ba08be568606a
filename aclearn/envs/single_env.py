"""One environment as a policy sees it, behind gymnasium's interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aclearn.envs.factory import make_vector_env
from aclearn.envs.vector_env import VectorEnv
from aclearn.errors import ArgumentError, EnvironmentFailure
from aclearn.types import OBSERVATION, ActionSpec, EnvStep, LeafSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart

if TYPE_CHECKING:
    from aclearn.config import EnvConfig


class SingleEnv(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """A group of one environment: its observations are the policy's, its actions its own.

    Args:
        env: names the environment.
        seed: of its first episode; later ones follow from it.
        step_timeout_s: time limit of a step, and of making or resetting it.

    Raises:
        EnvironmentFailure: it cannot be made, is of an unsupported kind, or has several agents.
    """

    def __init__(self, env: EnvConfig, *, seed: int, step_timeout_s: float) -> None:
        self._config, self._step_timeout_s = env, step_timeout_s
        self._group = self._make(seed)
        spec = self._group.spec
        self._action = spec.action
        self.observation_space = observation_space(spec.observation)
        self.action_space = action_space(spec.action)
        self._begun = self._ended = False

    def _make(self, seed: int) -> VectorEnv:
        group = make_vector_env(
            self._config,
            num_envs=1,
            seed=seed,
            step_timeout_s=self._step_timeout_s,
            max_faults=0,
        )
        if group.num_envs != 1:
            group.close()
            raise EnvironmentFailure(
                f"environment {self._config.id}: it has {group.num_envs} agents, and only one can "
                "be stepped here"
            )
        return group

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """The first observation of an episode; a seed makes the environment again."""
        super().reset(seed=seed)
        if options:
            raise ArgumentError("options: this environment takes none; set env.kwargs")
        if seed is not None:
            self._group.close()
            self._group, self._ended = self._make(seed), False
        # after an end the next step resets it, for which every action is the same
        observations = self._next().observations if self._ended else self._group.reset()
        self._begun, self._ended = True, False
        return self._shown(observations), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, true reward, terminated, truncated, info.

        Raises:
            ArgumentError: the action is not in `action_space`, or the episode has ended.
        """
        if not self._begun or self._ended:
            raise ArgumentError("step: reset the environment first")
        if not self.action_space.contains(action):
            raise ArgumentError(f"action: expected one of {self.action_space}, got {action!r:.200}")
        step = self._next(self._action.from_env([action]))
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        self._ended = terminated or truncated
        shown = self._shown(step.observations)
        return shown, float(step.rewards[0]), terminated, truncated, self._info()

    def close(self) -> None:
        """Close the environment; closing twice has no effect."""
        self._group.close()

    def _next(self, sampled: NDArray[Any] | None = None) -> EnvStep:
        if sampled is None:
            sampled = np.zeros((1, *self._action.shape), self._action.dtype)
        self._group.send(sampled)
        return self._group.recv()

    def _shown(self, observations: Mapping[str, NDArray[Any]]) -> Any:
        leaves = {name: leaf[0] for name, leaf in observations.items()}
        return leaves[OBSERVATION] if list(leaves) == [OBSERVATION] else leaves

    def _info(self) -> dict[str, Any]:
        masks = self._group.masks
        return {} if masks is None else {"action_mask": masks[0].copy()}


def observation_space(spec: ObservationSpec) -> spaces.Space[Any]:
    """The space of a policy's observations: a Box, or a Dict of them."""
    boxes: dict[str, spaces.Space[Any]] = {name: _box(leaf) for name, leaf in spec.items()}
    return boxes[OBSERVATION] if list(boxes) == [OBSERVATION] else spaces.Dict(boxes)


def _box(leaf: LeafSpec) -> spaces.Box:
    low, high = (0, leaf.high) if leaf.dtype == "uint8" else (-np.inf, np.inf)
    if leaf.binary:
        low, high = 0, 1
    return spaces.Box(low, high, leaf.shape, np.dtype(leaf.dtype).type)


def action_space(spec: ActionSpec) -> spaces.Space[Any]:
    """The space of an environment's actions, as `ActionSpec.to_env` gives them."""
    return _nested_space({part.path: _part_space(part) for part in spec.parts})


def _part_space(part: ActionPart) -> spaces.Space[Any]:
    if part.counts:
        if not part.shape:
            return spaces.Discrete(part.counts[0], start=part.starts[0])
        counts = np.array(part.counts).reshape(part.shape)
        starts = np.array(part.starts).reshape(part.shape)
        return spaces.MultiDiscrete(counts, dtype=np.dtype(part.dtype).type, start=starts)
    dtype = np.dtype(part.dtype).type
    low, high = (np.array(bound, dtype).reshape(part.shape) for bound in (part.low, part.high))
    return spaces.Box(low, high, part.shape, dtype)


def _nested_space(parts: Mapping[tuple[str | int, ...], spaces.Space[Any]]) -> spaces.Space[Any]:
    if () in parts:
        return parts[()]
    inner: dict[str | int, dict[tuple[str | int, ...], spaces.Space[Any]]] = {}
    for (key, *rest), space in parts.items():
        inner.setdefault(key, {})[tuple(rest)] = space
    built = {key: _nested_space(below) for key, below in inner.items()}
    return spaces.Tuple(built.values()) if 0 in built else spaces.Dict(built)
