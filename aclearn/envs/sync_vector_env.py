"""Single gymnasium environments, stepped one after another and made again when they fail."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.envs.deadline import ENVIRONMENT_FAULTS, StepDeadline, StepHungError
from aclearn.envs.spaces import ObservationError, mask_row, read_actions, read_layout
from aclearn.envs.vector_env import env_actions
from aclearn.errors import EnvironmentFailure, trace_of, words_of
from aclearn.types import OBSERVATION, EnvSpec, EnvStep, ObservationSpec
from aclearn.types.env_spec import Observations

_LOGGER = logging.getLogger(__name__)
#: Time for which a fault counts towards `max_faults`: a broken environment fails more often, and
#: one fault a day must not end a run of a week.
_FAULTS_COUNT_FOR_S = 3600.0
_FLOAT32_MAX = float(np.finfo(np.float32).max)


class SyncVectorEnv:
    """B environments of one kind in a Python loop, with next-step autoreset.

    An environment that raises, exits, hangs, or leaves its spaces is closed and made again; the
    step marks it as `faulted`. `step_timeout_s` limits one step of the whole group (StepDeadline).
    After more than `max_faults` within an hour, or in a row in one environment, the group fails.

    Environment b is seeded with seed + b at its first reset only. One that is made again gets a
    seed drawn from (seed, b, number of the fault), so that it need not repeat the fault and a run
    stays a function of its seed.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        name: str,
        num_envs: int,
        seed: int,
        frame_stack: int,
        squash: bool = False,
        masked: bool = False,
        step_timeout_s: float,
        max_faults: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._name = name
        self._seed = seed
        self._max_faults = max_faults
        self._clock = clock
        self._deadline = StepDeadline(step_timeout_s)
        self._envs: list[Any] = []
        self._steps: list[Any] = []
        try:
            for _ in range(num_envs):
                fault = self._fault_of(lambda: self._envs.append(make()))
                if isinstance(fault, EnvironmentFailure):
                    raise fault
                if fault is not None:
                    raise EnvironmentFailure(
                        f"environment {name} cannot be made ({words_of(fault)})\n{trace_of(fault)}"
                    ) from fault
            action = read_actions(self._envs[0].action_space, name, squash=squash)
            self._layout = read_layout(
                self._envs[0].observation_space, name, num_envs=num_envs, frame_stack=frame_stack
            )
            self._steps = [env.step for env in self._envs]
        except EnvironmentFailure:
            self.close()
            raise
        except ENVIRONMENT_FAULTS as error:
            self.close()
            raise EnvironmentFailure(
                f"environment {name}: its spaces cannot be read "
                f"({words_of(error)})\n{trace_of(error)}"
            ) from error
        if masked and not action.counts:
            self.close()
            raise EnvironmentFailure(
                f"environment {name}: env.action_mask is set, and its actions ({action}) have "
                "nothing to mask; set env.action_mask: null"
            )
        leaf = self._layout.leaf
        warning = _warning(name, self._envs[0], leaf.shape)
        self.spec = EnvSpec(ObservationSpec({OBSERVATION: leaf}), action, warning, masked)
        self.num_envs = num_envs
        self.masks = np.ones((num_envs, action.mask_width), np.bool_) if masked else None
        self.faults: dict[str, int] = {}
        self.between_attempts: Callable[[], None] = lambda: None
        self._recent_faults: deque[tuple[float, str]] = deque()
        self._seeded = False
        self._ended = np.zeros(num_envs, np.bool_)
        self._actions: Sequence[Any] | None = None
        self._impossible: list[int] = []
        self._mask_seen = False

    def reset(self) -> Observations:
        """First observations, leaf → [B, *shape]; only the first call seeds."""
        observations = self._begin()
        for b in range(self.num_envs):
            seed = None if self._seeded else self._seed + b
            fault = self._fault_of(partial(self._begin_episode, b, seed))
            if fault is not None:
                self._replace(b, fault)
            self.between_attempts()
        for b in self._layout.not_finite():
            said = f"observation is {observations[b]}"
            self._replace(b, ObservationError("observation_not_finite", said))
        self._seeded = True
        self._ended = np.zeros(self.num_envs, np.bool_)
        self._actions = None
        return {OBSERVATION: observations}

    def _begin(self) -> NDArray[Any]:
        """A fresh batch of observations, and fresh masks where there are any."""
        if self.masks is not None:
            self.masks = np.ones_like(self.masks)
        return self._layout.begin()

    def send(self, actions: NDArray[Any]) -> None:
        """Keep sampled actions [B, …] for `recv`, which does the work.

        Numbers that no environment can take are a fault of the step, unlike a wrong choice.
        """
        action = self.spec.action
        if action.numbers and actions.shape == (self.num_envs, *action.shape):
            impossible = ~action.contains(actions)
            self._impossible = np.flatnonzero(impossible & ~self._ended).tolist()
            actions = np.where(impossible[:, None], np.float32(0.0), actions)
        self._actions = env_actions(actions, self.spec.action, self.num_envs)

    def recv(self) -> EnvStep:
        """Step every environment with the actions of the last `send`."""
        actions, self._actions = self._actions, None
        if actions is None:
            raise RuntimeError("recv() without a send() before it")
        B = self.num_envs
        observations = self._begin()
        rewards = np.zeros(B, np.float64)
        terminated = np.zeros(B, np.bool_)
        truncated = np.zeros(B, np.bool_)
        faulted = np.zeros(B, np.bool_)
        ended = self._ended.tolist()
        steps, write, masks, spec = self._steps, self._layout.write, self.masks, self.spec.action
        b = 0
        while b < B:
            try:
                with self._deadline:
                    while b < B:
                        if ended[b]:
                            self._begin_episode(b, None)
                        else:
                            shown, reward, terminal, cut, info = steps[b](actions[b])
                            write(b, shown)
                            if masks is not None:
                                masks[b] = mask_row(info, spec, ended=bool(terminal or cut))
                            rewards[b] = reward
                            terminated[b] = terminal
                            truncated[b] = cut
                        b += 1
            except ENVIRONMENT_FAULTS as error:
                self._deadline.disarm()
                if b < B:  # otherwise the alarm came just after the last one
                    self._replace(b, error)
                    faulted[b] = True
                    b += 1
        for b in self._impossible:
            if not faulted[b]:
                self._replace(b, ObservationError("action_not_finite", "NaN or too large"))
                faulted[b] = True
        # Written so that NaN fails too; beyond float32's range it is infinite for the trainer.
        if not (np.abs(rewards) <= _FLOAT32_MAX).all():
            for b in np.flatnonzero(~(np.abs(rewards) <= _FLOAT32_MAX)).tolist():
                if not faulted[b]:
                    said = f"reward is {rewards[b]}"
                    self._replace(b, ObservationError("reward_not_finite", said))
                    faulted[b] = True
        for b in self._layout.not_finite():
            said = f"observation is {observations[b]}"
            self._replace(b, ObservationError("observation_not_finite", said))
            faulted[b] = True
        if faulted.any():
            rewards[faulted] = 0.0
            terminated &= ~faulted
            truncated &= ~faulted
        reset = self._ended | faulted
        self._ended = terminated | truncated
        return EnvStep(
            observations={OBSERVATION: observations},
            rewards=rewards.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            life_lost=np.zeros(B, np.bool_),
            reset=reset,
            faulted=faulted,
        )

    def close(self) -> None:
        """Close every environment; errors are logged."""
        envs, self._envs, self._steps = self._envs, [], []
        for b, env in enumerate(envs):
            self._close_one(b, env)
        self._deadline.close()

    def _fault_of(self, act: Callable[[], object]) -> BaseException | None:
        """Call an environment's code; returns its fault, None if it succeeds in time."""
        try:
            with self._deadline:
                act()
        except ENVIRONMENT_FAULTS as error:
            self._deadline.disarm()
            return error
        return None

    def _begin_episode(self, b: int, seed: int | None) -> None:
        shown, info = self._envs[b].reset(seed=seed)
        self._layout.write_first(b, shown)
        if self.masks is not None:
            self.masks[b] = mask_row(info, self.spec.action, ended=False)
        elif not self._mask_seen and isinstance(info, dict) and "action_mask" in info:
            self._mask_seen = True
            _LOGGER.warning(
                "event=action_mask_unused name=%s detail='its info has an action_mask; "
                "env.action_mask: info applies it'", self._name,
            )  # fmt: skip

    def _replace(self, b: int, error: BaseException) -> None:
        """Make environment b again and write its first observation into the batch.

        Raises:
            EnvironmentFailure: there were too many faults; its cause is the last one.
        """
        # earlier faults stay while this environment cannot be made
        self._forget_old_faults()
        while True:
            self._count(b, error)
            self.between_attempts()
            self._close_one(b, self._envs[b])
            self.between_attempts()
            seeds = np.random.SeedSequence([self._seed, b, sum(self.faults.values())])
            fault = self._fault_of(partial(self._make_again, b, seeds))
            if fault is not None:
                error = fault
                continue
            if b not in self._layout.not_finite():
                self.between_attempts()
                return
            said = "at the first observation of an episode"
            error = ObservationError("observation_not_finite", said)

    def _make_again(self, b: int, seeds: np.random.SeedSequence) -> None:
        self._envs[b] = self._make()
        self._steps[b] = self._envs[b].step
        self._begin_episode(b, int(seeds.generate_state(1)[0]))

    def _forget_old_faults(self) -> None:
        recent, oldest = self._recent_faults, self._clock() - _FAULTS_COUNT_FOR_S
        while recent and recent[0][0] < oldest:
            recent.popleft()

    def _count(self, b: int, error: BaseException) -> None:
        reason, detail = _describe(error)
        self.faults[reason] = self.faults.get(reason, 0) + 1
        total = sum(self.faults.values())
        recent = self._recent_faults
        recent.append((self._clock(), reason))
        _LOGGER.warning(
            "event=environment_fault name=%s env=%d reason=%s total=%d detail=%r",
            self._name, b, reason, total, detail,
        )  # fmt: skip
        if len(recent) > self._max_faults:
            words = Counter(word for _, word in recent)
            counts = ", ".join(f"{word} {n}" for word, n in sorted(words.items()))
            raise EnvironmentFailure(
                f"environment {self._name} failed {len(recent)} times ({counts}) within an hour or "
                f"in a row, actors.max_env_faults allows {self._max_faults}. "
                f"The last fault, in environment {b} of its group: {reason}: {detail}"
            ) from error

    def _close_one(self, b: int, env: Any) -> None:
        error = self._fault_of(env.close)
        if error is not None:
            _LOGGER.warning(
                "event=environment_close_failed name=%s env=%d error=%r", self._name, b, error
            )


def _describe(error: BaseException) -> tuple[str, str]:
    """Reason for the counter, and detail for the user."""
    if isinstance(error, ObservationError):
        return error.reason, str(error)
    return "hung" if isinstance(error, StepHungError) else "raised", trace_of(error)


def _warning(name: str, env: Any, shape: tuple[int, ...]) -> str:
    """A warning of an Atari game without env.atari's preprocessing; empty for others."""
    game = env.unwrapped
    if not type(game).__module__.startswith("ale_py"):
        return ""
    played = getattr(game.spec, "id", None) or "an Atari game"
    return (
        f"env.id: {name} makes {played} itself, with observations of shape {shape}; env.atari "
        "prepares a game only where env.id is its id, such as ALE/Pong-v5"
    )
