"""One environment as the actors step it, behind gymnasium's interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from aclearn.envs.factory import make_vector_env
from aclearn.envs.own_observations import OwnObservations
from aclearn.envs.own_spaces import action_space
from aclearn.envs.vector_env import VectorEnv
from aclearn.errors import ArgumentError, EnvironmentFailure
from aclearn.types import EnvStep

if TYPE_CHECKING:
    from aclearn.config import EnvConfig


class SingleEnv(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """A group of one environment, with the observations and actions of its own spaces.

    Args:
        seed: of its first episode; later ones follow from it.
        render_mode: of gymnasium; None: it is not drawn.

    Raises:
        ArgumentError: it cannot be drawn in this mode.
        EnvironmentFailure: it cannot be made, is of an unsupported kind, or has several agents.
    """

    def __init__(
        self, env: EnvConfig, *, seed: int, step_timeout_s: float, render_mode: str | None = None
    ) -> None:
        self.render_mode = render_mode
        self._config = env if render_mode is None else drawn(env, render_mode)
        self._step_timeout_s = step_timeout_s
        self._group = self._make(seed)
        spec = self._group.spec
        self._action = spec.action
        self._observations = OwnObservations(spec.observation, spec.form)
        self.observation_space = self._observations.space
        self.action_space = action_space(spec.action)
        self.metadata = {
            "render_modes": [] if render_mode is None else [render_mode],
            "render_fps": self._group.picture_rate,
        }
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
        seed = None if seed is None else int(seed)  # gymnasium takes no integer of numpy
        super().reset(seed=seed)
        if options:
            raise ArgumentError("options: this environment takes none; set env.kwargs")
        if seed is not None:
            self._group.close()
            self._group, self._ended = self._make(seed), False
        # after an end the next step resets it, for which every action is the same
        observations = self._next().observations if self._ended else self._group.reset()
        self._begun, self._ended = True, False
        return self._observations.show(observations, 0), self._info()

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
        shown = self._observations.show(step.observations, 0)
        return shown, float(step.rewards[0]), terminated, truncated, self._info()

    def render(self) -> Any:
        """What the environment's own `render` gives, in "rgb_array" mode a picture `[H, W, 3]`.

        Raises:
            ArgumentError: it was made without a `render_mode`.
            EnvironmentFailure: it cannot be drawn.
        """
        if self.render_mode is None:
            raise ArgumentError('render: make the environment with render_mode="rgb_array"')
        return self._group.picture()

    def close(self) -> None:
        """Close the environment; closing twice has no effect."""
        self._group.close()

    def _next(self, sampled: NDArray[Any] | None = None) -> EnvStep:
        if sampled is None:
            sampled = np.zeros((1, *self._action.shape), self._action.dtype)
        self._group.send(sampled)
        return self._group.recv()

    def _info(self) -> dict[str, Any]:
        masks = self._group.masks
        return {} if masks is None else {"action_mask": masks[0].copy()}


def drawn(env: EnvConfig, mode: str = "rgb_array") -> EnvConfig:
    """The configuration of the same environment with gymnasium's `render_mode`.

    An Atari game shows the screens that the policy sees, and a resident environment has its own
    `draw`, so their mode is "rgb_array".

    Raises:
        ArgumentError: it cannot be drawn in this mode.
    """
    if env.is_vector:
        raise ArgumentError(
            f"environment {env.id}: vector environments have no pictures; name the single "
            "environment of gymnasium in env.id"
        )
    drawn_by_itself = env.is_atari or env.is_resident
    if not drawn_by_itself:
        return env.model_copy(update={"kwargs": {**env.kwargs, "render_mode": mode}})
    if mode != "rgb_array":
        raise ArgumentError(f"render_mode: {env.id} has rgb_array only, got {mode!r}")
    return env
