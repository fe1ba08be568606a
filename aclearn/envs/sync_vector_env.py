"""Single gymnasium environments, stepped one after another and made again when they fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aclearn.envs.contract import (
    ContractError,
    begin_episode,
    flag_of,
    in_range,
    range_error,
    reward_of,
    step_result,
)
from aclearn.envs.deadline import environment_faults
from aclearn.envs.observation_layout import ObservationLayout
from aclearn.envs.restarting import RestartingEnvs
from aclearn.envs.spaces import mask_row, read_actions
from aclearn.envs.torch_defaults import ENVIRONMENTS
from aclearn.envs.vector_env import env_actions
from aclearn.errors import AclearnError, EnvironmentFailure, words_of
from aclearn.extensions import users_line
from aclearn.types import ActionSpec, EnvSpec, EnvStep, ObservationSpec
from aclearn.types.bounds import LARGEST_ACTION
from aclearn.types.env_spec import Bools
from aclearn.types.observation_spec import Observations

if TYPE_CHECKING:
    from aclearn.config import EnvConfig

_LOGGER = logging.getLogger(__name__)
#: Seconds of a step of the group after which the caller gets a moment for its heartbeat.
_PAUSE_AFTER_S = 1.0
#: Pictures a second where the environment does not say it.
_USUAL_RATE = 30.0


class SyncVectorEnv:
    """Environments of one kind in a Python loop, with next-step autoreset.

    An environment that raises, exits, hangs, or breaks its contract is closed and made again; the
    step marks it as `faulted`. The time limit is that of each call of one environment. Environment
    e is seeded with seed + e at its first reset only.

    Raises:
        EnvironmentFailure: the environments' spaces are not supported; they are closed.
    """

    def __init__(self, group: RestartingEnvs, env: EnvConfig) -> None:
        self._group, name = group, group.name
        self._mask_from, masked = env.action_mask, env.action_mask is not None
        try:
            self._read_spaces(env)
        except BaseException as error:
            group.close()
            if isinstance(error, AclearnError) or not isinstance(error, environment_faults()):
                raise
            raise EnvironmentFailure(
                f"environment {name}: its spaces cannot be read ({words_of(error)})"
                f"{users_line(error)}"
            ) from error
        B = self.num_envs = len(group.envs) * self.spec.agents
        self.masks = np.ones((B, self.spec.action.mask_width), np.bool_) if masked else None
        self.faults, self.fault_details = group.faults, group.fault_details
        self.between_attempts: Callable[[], None] = lambda: None
        group.between_attempts = lambda: self.between_attempts()
        self._seeded = False
        #: Where the next action is ignored.
        self._idle = np.zeros(B, np.bool_)
        self._actions: Sequence[Any] | None = None
        #: Row → sampled action that no environment can take.
        self._impossible: dict[int, NDArray[Any]] = {}
        #: Steps of each environment's running episode.
        self._taken = [0] * len(group.envs)
        self._mask_seen = masked
        #: Row → info of an episode that ends in this step.
        self._infos: dict[int, dict[str, Any]] = {}

    def _read_spaces(self, env: EnvConfig) -> None:
        """Set `spec`, and how observations are laid out in rows."""
        observations, self._action_space, agents = self._spaces()
        self._layout, action = read_spaces(
            observations,
            self._action_space,
            self._group.name,
            env,
            num_envs=len(self._group.envs) * agents,
        )
        observation, masked = self._layout.spec, env.action_mask is not None
        warning = _warning(self._group.name, self._group.envs[0], observation)
        self.spec = EnvSpec(observation, action, warning, masked, agents, self._layout.form)

    def _spaces(self) -> tuple[Any, Any, int]:
        """Observation and action space of an agent, and the number of agents of an environment."""
        first = self._group.envs[0]
        return first.observation_space, first.action_space, 1

    def reset(self, seed: int | None = None) -> Observations:
        """First observations of a new episode in every environment."""
        observations = self._begin()
        group = self._group
        if seed is not None:
            group.seed, self._seeded = seed, False
        for e in range(len(group.envs)):
            own = None if self._seeded else group.seed + e
            fault = group.fault_of(partial(self._begin_checked_episode, e, own))
            if fault is not None:
                group.replace(e, fault, self._begin_checked_episode)
            group.between_attempts()
        self._seeded = True
        none = np.zeros(self.num_envs, np.bool_)
        self._idle = self._idle_after(none)
        self._actions = None
        return observations

    def _begin(self) -> dict[str, NDArray[Any]]:
        """A fresh batch of observations, and fresh masks where there are any."""
        if self.masks is not None:
            self.masks = np.ones_like(self.masks)
        return self._layout.begin()

    def send(self, actions: NDArray[Any]) -> None:
        """Keep sampled actions [B, …] for `recv`, which does the work.

        Numbers that no environment can take are a fault of the step, unlike a wrong choice.
        """
        self._actions, self._impossible = possible_actions(actions, self.spec.action, self._idle)

    def recv(self) -> EnvStep:
        """Step every environment with the actions of the last `send`."""
        actions, self._actions = self._actions, None
        if actions is None:
            raise RuntimeError("recv() without a send() before it")
        B, group = self.num_envs, self._group
        observations = self._begin()
        rewards = np.zeros(B, np.float64)
        terminated = np.zeros(B, np.bool_)
        truncated = np.zeros(B, np.bool_)
        faulted = np.zeros(B, np.bool_)
        idle, self._infos = self._idle.tolist(), {}
        e, count, step_one = 0, len(group.envs), self._step_one
        while e < count:
            try:
                with ENVIRONMENTS, group.deadline:
                    while e < count:
                        step_one(e, actions, idle, rewards, terminated, truncated)
                        took_s = group.deadline.next_call()
                        e += 1
                        if took_s > _PAUSE_AFTER_S:
                            break
            except BaseException as fault:
                group.deadline.disarm()
                if not isinstance(fault, environment_faults()):
                    raise
                if e < count:  # otherwise the alarm came just after the last one
                    self._replace(e, fault, faulted)
                    e += 1
            else:
                if e < count:
                    group.between_attempts()
        for b, error in self._out_of_range(rewards):
            if not faulted[b]:
                self._replace(b // self.spec.agents, error, faulted)
        if faulted.any():
            rewards[faulted] = 0.0
            terminated &= ~faulted
            truncated &= ~faulted
        reset = self._idle | faulted
        self._idle = self._idle_after(terminated | truncated)
        return EnvStep(
            observations=observations,
            rewards=rewards.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            life_lost=np.zeros(B, np.bool_),
            reset=reset,
            faulted=faulted,
            infos=self._infos,
        )

    def _out_of_range(self, rewards: NDArray[np.float64]) -> Iterator[tuple[int, ContractError]]:
        """Rows whose action, reward or observation no run can learn from, and the fault."""
        for b, action in self._impossible.items():
            said = f"the sampled action {action.tolist()} is NaN or beyond {LARGEST_ACTION:g}"
            yield b, ContractError("action_range", said)
        if not in_range(rewards).all():
            for b in np.flatnonzero(~in_range(rewards)).tolist():
                yield b, range_error(rewards[b], "reward", "reward")
        yield from self._layout.out_of_range().items()

    @property
    def picture_rate(self) -> float:
        """Pictures a second of the first environment, as its metadata say."""
        metadata = getattr(self._group.envs[0], "metadata", None) or {}
        return float(metadata.get("render_fps") or _USUAL_RATE)

    def picture(self) -> Any:
        """The first environment now, `[H, W, 3]` uint8."""
        try:
            return self._group.envs[0].render()
        except Exception as error:  # the user's code, or a package that is missing
            raise EnvironmentFailure(
                f"environment {self._group.name} cannot be drawn ({words_of(error)})"
            ) from error

    def close(self) -> None:
        """Close every environment; errors are logged."""
        self._group.close()

    def _step_one(
        self,
        e: int,
        actions: Sequence[Any],
        idle: list[bool],
        rewards: NDArray[np.float64],
        terminated: Bools,
        truncated: Bools,
    ) -> None:
        """Step environment e, or begin its next episode, and write into the arrays."""
        if idle[e]:
            self._begin_episode(e, None)
            return
        self._taken[e] += 1
        # looked up each time: an environment may replace its step
        shown, reward, terminal, cut, info = step_result(self._group.envs[e].step(actions[e]))
        self._layout.write(e, shown)
        rewards[e] = reward_of(reward)
        terminated[e] = over = flag_of(terminal, "terminated")
        truncated[e] = limited = flag_of(cut, "truncated")
        if over or limited:
            self._infos[e] = info
        self._write_mask(e, shown, info, terminal=over)

    def _idle_after(self, ended: Bools) -> Bools:
        """Where the next action is ignored, after a step that ended these episodes."""
        return ended

    def _begin_episode(self, e: int, seed: int | None) -> None:
        env = self._group.envs[e]
        self._taken[e] = 0
        shown, info = begin_episode(env, seed)
        self._check_spaces(env.observation_space, env.action_space)
        self._write_first(e, shown, info)

    def _check_spaces(self, observations: Any, actions: Any) -> None:
        """Raise `ContractError` if a reset has changed the leaves or the actions."""
        self._layout.check_space(observations)
        first = self._action_space
        if actions is not first and actions != first:
            said = f"its action space has become {actions}; it was {first}"
            raise ContractError("action_space", said)

    def _write_first(self, b: int, shown: Any, info: Any) -> None:
        """Write the first observation and mask of an episode."""
        self._layout.write_first(b, shown)
        self._write_mask(b, shown, info, terminal=False)
        if not self._mask_seen and "action_mask" in info:
            self._mask_seen = True
            _LOGGER.warning(
                "event=action_mask_unused name=%s detail='its info has an action_mask; "
                "env.action_mask: info applies it'", self._group.name,
            )  # fmt: skip

    def _write_mask(self, b: int, shown: Any, info: Any, *, terminal: bool) -> None:
        """Write which actions are allowed after this observation, where there are masks."""
        if self.masks is None:
            return
        by_info = self._mask_from == "info"
        given = info.get("action_mask") if by_info else self._layout.mask_of(shown)
        where = "info['action_mask']" if by_info else str(self._mask_from)
        self.masks[b] = mask_row(given, self.spec.action, where=where, terminal=terminal)

    def _begin_checked_episode(self, e: int, seed: int | None) -> None:
        """Begin an episode; a number out of range in its first observation is a fault."""
        self._begin_episode(e, seed)
        for b, error in self._layout.out_of_range().items():
            if b // self.spec.agents == e:
                raise error

    def _replace(self, e: int, error: BaseException, faulted: Bools) -> None:
        """Make environment e again, and mark all its rows."""
        self._group.replace(e, error, self._begin_checked_episode, step=self._taken[e])
        agents = self.spec.agents
        faulted[e * agents : (e + 1) * agents] = True


def read_spaces(
    observations: Any, actions: Any, name: str, env: EnvConfig, *, num_envs: int
) -> tuple[ObservationLayout, ActionSpec]:
    """The layout of `num_envs` rows of observations, and the actions.

    Raises:
        EnvironmentFailure: the spaces are not supported, or not with these keys of `env`.
    """
    action = read_actions(actions, name, squash=env.squash_actions)
    layout = ObservationLayout(observations, name, env, num_envs=num_envs)
    if env.action_mask is not None and not action.counts:
        raise EnvironmentFailure(
            f"environment {name}: env.action_mask is set, and its actions ({action}) have "
            "nothing to mask; set env.action_mask: null"
        )
    return layout, action


def possible_actions(
    actions: NDArray[Any], action: ActionSpec, idle: Bools
) -> tuple[Sequence[Any], dict[int, NDArray[Any]]]:
    """The environments' form of the sampled actions `[B, …]`, and row → one that none can take.

    Args:
        idle: `[B]`, where it is ignored.

    Raises:
        ValueError: a wrong shape or dtype, or a choice that does not exist.
    """
    impossible: dict[int, NDArray[Any]] = {}
    if action.numbers and actions.shape == (len(idle), *action.shape):
        wrong = ~action.contains(actions)
        impossible = {b: actions[b] for b in np.flatnonzero(wrong & ~idle).tolist()}
        actions = np.where(wrong[:, None], np.float32(0.0), actions)
    return env_actions(actions, action, len(idle)), impossible


def _warning(name: str, env: Any, observation: ObservationSpec) -> str:
    """A warning of an Atari game without env.atari's preprocessing; empty for others."""
    game = env.unwrapped
    if not type(game).__module__.startswith("ale_py"):
        return ""
    played = getattr(game.spec, "id", None) or "an Atari game"
    return (
        f"env.id: {name} makes {played} itself, with the observations {observation}; env.atari "
        "prepares a game only where env.id is its id, such as ALE/Pong-v5"
    )
