"""Atari games on ale-py's own vector environment: emulator, preprocessing and stack in C++."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv  # its package registers the ALE/ ids too
from numpy.typing import NDArray

from aclearn.envs.restarting import log_trace
from aclearn.envs.vector_env import env_actions
from aclearn.envs.watchdog import Watchdog
from aclearn.errors import ConfigError, EnvironmentFailure, did_you_mean, words_of
from aclearn.types import OBSERVATION, ActionSpec, EnvSpec, EnvStep, ObservationSpec
from aclearn.types.observation_spec import Observations

if TYPE_CHECKING:
    from aclearn.config import EnvConfig

#: Of the emulated console.
_FRAMES_PER_S = 60.0
#: Arguments of AtariVectorEnv that keys of env.atari set.
_OF_ATARI = {
    "frameskip": "frame_skip",
    "full_action_space": "full_action_space",
    "max_num_frames_per_episode": "max_episode_frames",
    "maxpool": "max_pool",
    "noop_max": "noop_max",
    "repeat_action_probability": "repeat_action_probability",
    "stack_num": "frame_stack",
    "use_fire_reset": "fire_reset",
}
#: Arguments that env.kwargs must not set, and why.
_RESERVED = {
    "game": "env.id names it",
    "num_envs": "actors.envs_per_group sets it",
    "num_threads": "actors.emulator_threads sets it",
    "batch_size": "a group always steps as a whole",
    "autoreset_mode": "everything downstream expects next-step autoreset",
    "reward_clipping": "true returns are reported; set env.clip_rewards",
    "episodic_life": "true episodes are reported; set env.life_loss_ends",
    "life_loss_info": "true episodes are reported; set env.life_loss_ends",
    "continuous": "Atari games are played with their discrete actions",
    "continuous_action_threshold": "Atari games are played with their discrete actions",
    "grayscale": "colour is not supported yet",
    **{argument: f"env.atari.{key} sets it" for argument, key in _OF_ATARI.items()},
}
#: Arguments with the bounds of env.atari.screen_size, which sets both.
_SIZES = ("img_height", "img_width")
#: Seconds of the time limit for each game of a thread, beside that of the group: a reset of one
#: takes some hundredths.
_FOR_EACH_GAME_S = 0.1


class AtariEnvs:
    """B Atari games in worker threads of the emulator.

    It relies on these properties of ale-py 0.12.1; tests check each:

    * Worker threads emulate from `send` to `recv`, without the interpreter's lock. With batch_size
      == num_envs the results come in the order of the environments.
    * `recv` gives new arrays each time: observations uint8, rewards int32, flags bool, lives int32.
    * An episode that ended is reset by the next step: the action is ignored, reward and flags are
      0. The stack then holds zeros and, last, the first frame.
    * Truncation comes with agent step ceil(max_num_frames_per_episode / frame_skip); idle steps
      after a reset do not count.
    * Seeds must be 0 to 2**31-1: a negative one is silently ignored.
    * An invalid action hangs or ends the process, so actions are checked before.

    A hang inside the emulator cannot be interrupted: after `step_timeout_s` seconds, and a tenth
    for each game of a thread, the process ends, and the supervisor restarts the actor. Errors of
    the emulator end the group; single games are not made again, so `faults` stays empty.
    """

    def __init__(
        self, env: EnvConfig, *, num_envs: int, seed: int, threads: int, step_timeout_s: float
    ) -> None:
        arguments = _arguments(env)
        arguments["num_envs"] = num_envs
        arguments["num_threads"] = min(threads, num_envs)
        self._name = env.id
        try:
            self._envs: Any = AtariVectorEnv(**arguments)
        except Exception as error:
            log_trace(env.id, error)
            raise EnvironmentFailure(
                f"environment {env.id}: ale-py cannot make it ({words_of(error)})"
            ) from error
        space = self._envs.single_observation_space
        shape = tuple(space.shape)
        self.spec = EnvSpec(
            ObservationSpec.plain(shape, "uint8", frame_stack=shape[0]),
            ActionSpec.discrete(int(self._envs.single_action_space.n)),
        )
        self.num_envs = num_envs
        self.masks: NDArray[np.bool_] | None = None
        games = -(-num_envs // arguments["num_threads"])
        limit_s = step_timeout_s + games * _FOR_EACH_GAME_S
        self._watch = Watchdog(limit_s, f"environment {env.id}: a step")
        self.faults: dict[str, int] = {}
        self.between_attempts: Callable[[], None] = lambda: None  # never called
        self.picture_rate = _FRAMES_PER_S / env.atari.frame_skip
        self._screen = np.zeros(shape[1:], np.uint8)
        self._seeds: NDArray[Any] | None = _seeds(seed, num_envs)
        self._lives = np.zeros(num_envs, np.int32)
        self._ended = np.zeros(num_envs, np.bool_)
        self._none = np.zeros(num_envs, np.bool_)
        self._none.flags.writeable = False

    def reset(self, seed: int | None = None) -> Observations:
        """First screens [B, S, H, W] uint8."""
        if seed is not None:
            self._seeds = _seeds(seed, self.num_envs)
        with self._watch:
            observations, info = self._envs.reset(seed=self._seeds)
        self._seeds = None
        self._screen = observations[0, -1]
        self._lives = info["lives"]
        self._ended = self._none
        return {OBSERVATION: observations}

    def send(self, actions: NDArray[Any]) -> None:
        """Start the step with sampled actions [B]; returns at once."""
        self._envs.send(np.array(env_actions(actions, self.spec.action, self.num_envs)))

    def recv(self) -> EnvStep:
        """Wait for the step of the last `send`."""
        try:
            with self._watch:
                observations, rewards, terminated, truncated, info = self._envs.recv()
        except Exception as error:
            log_trace(self._name, error)
            raise EnvironmentFailure(
                f"environment {self._name}: the emulator failed ({words_of(error)})"
            ) from error
        self._screen = observations[0, -1]
        lives = info["lives"]
        reset = self._ended
        life_lost = lives < self._lives
        # Some games show 0 lives for a few frames before their end: the last life must count once.
        life_lost &= lives > 0
        life_lost &= ~(reset | terminated)
        self._lives = lives
        self._ended = terminated | truncated
        return EnvStep(
            observations={OBSERVATION: observations},
            rewards=rewards.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            life_lost=life_lost,
            reset=reset,
            faulted=self._none,
            infos={
                int(b): {name: values[b] for name, values in info.items()}
                for b in np.flatnonzero(self._ended)
            },
        )

    def picture(self) -> NDArray[np.uint8]:
        """The newest screen that the policy sees."""
        return np.repeat(self._screen[..., None], 3, axis=2)

    def close(self) -> None:
        """Stop the emulator's threads."""
        # Its destructor joins them; gymnasium's close() only sets a flag.
        self._envs = None
        self._watch.close()


def _arguments(env: EnvConfig) -> dict[str, Any]:
    """Arguments of AtariVectorEnv from the configuration."""
    atari = env.atari
    known = inspect.signature(AtariVectorEnv.__init__).parameters
    for key in env.kwargs:
        if key in _RESERVED:
            raise EnvironmentFailure(
                f"environment {env.id}: env.kwargs.{key} cannot be set, since {_RESERVED[key]}"
            )
        if key not in known:
            free = sorted(set(known) - set(_RESERVED) - {"self"})
            raise EnvironmentFailure(
                f"environment {env.id}: env.kwargs.{key} is no argument of Atari games"
                f"{did_you_mean(key, free) or '.'} Known are {', '.join(free)}"
            )
    for key in set(_SIZES) & env.kwargs.keys():
        try:
            type(atari)(screen_size=env.kwargs[key])
        except ConfigError as error:
            raise EnvironmentFailure(
                f"environment {env.id}: env.kwargs.{key} has the bounds of env.atari.screen_size: "
                f"{error}"
            ) from error
    return {
        "game": _rom(env.id),
        "autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP,
        "reward_clipping": False,
        "episodic_life": False,
        "life_loss_info": False,
        **dict.fromkeys(_SIZES, atari.screen_size),
        **{argument: getattr(atari, key) for argument, key in _OF_ATARI.items()},
        # ale-py draws from 0 to noop_max-1 and hangs if given 0; ours is the largest draw.
        "noop_max": atari.noop_max + 1,
        **env.kwargs,
    }


def _seeds(first: int, num_envs: int) -> NDArray[Any]:
    """The games' seeds [B]; a negative one would be ignored."""
    return (first + np.arange(num_envs)) % 2**31


def _rom(env_id: str) -> str:
    """Name of the ROM behind an id: "ALE/SpaceInvaders-v5" → "space_invaders"."""
    try:
        return str(gymnasium.spec(env_id).kwargs["game"])
    except gymnasium.error.Error as error:
        games = [known for known in gymnasium.registry if known.startswith("ALE/")]
        raise EnvironmentFailure(
            f"env.id {env_id!r}: ale-py knows no such game{did_you_mean(env_id, games)}"
        ) from error
