"""Unrolls: T consecutive steps of B environments, collected step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.types import EnvSpec, EnvStep, PolicyVersion


@dataclass(frozen=True, eq=False)
class CollectedUnroll:
    """A full unroll before it gets its place in the actor's count.

    Attributes:
        fields: the arrays of an `Unroll` by name.
        generation: the oldest generation among its steps.
        steps: agent steps to learn from.
        dropped: reason → agent steps taken but masked.
        chain: the compressor chain whose artifact chose the last action.
    """

    fields: dict[str, Any]
    generation: int
    steps: int
    dropped: dict[str, int]
    chain: str = "none"


class UnrollBuilder:
    """Collects one group's steps into unrolls; pure bookkeeping, no socket, no clock.

    `begin` with the first observations, then `add` each step; when `full`, `take` the unroll: the
    next one starts from the observations that the last step reached.

    Args:
        spec: of the environments.
        num_envs: B.
        length: T.
        clip_rewards: learn from rewards clipped to [-1, 1].
        life_loss_ends: a lost life terminates the episode for the learner, not for the game.
    """

    def __init__(
        self,
        spec: EnvSpec,
        *,
        num_envs: int,
        length: int,
        clip_rewards: bool,
        life_loss_ends: bool,
    ) -> None:
        self._num_envs, self._length = num_envs, length
        self._clip_rewards, self._life_loss_ends = clip_rewards, life_loss_ends
        leaf = spec.observation.sole
        self._stacked, self._newest, self._older = leaf.frame_stack > 1, leaf.newest, leaf.older
        self._t = 0
        self._generation = -1
        self._chain = "none"
        # so that `steps` is known, and 0, while the environments are still being reset
        self._valid = np.zeros((0, num_envs), np.bool_)
        self._faulted_steps = 0

    def begin(self, observations: NDArray[Any]) -> None:
        """Start the first unroll at `observations` `[B, *shape]`."""
        self._open(observations)

    @property
    def full(self) -> bool:
        """Whether T steps have been added."""
        return self._t == self._length

    @property
    def steps(self) -> int:
        """Agent steps in the unfinished unroll, masked ones included."""
        return int(np.count_nonzero(self._valid[: self._t])) + self._faulted_steps

    def add(
        self,
        actions: NDArray[np.int32],
        log_probs: NDArray[np.float32],
        at: PolicyVersion,
        step: EnvStep,
        chain: str = "none",
    ) -> None:
        """Append what happened when `actions` were taken.

        Args:
            actions: `[B]` int32.
            log_probs: `[B]` float32, log μ of those actions, as sampled.
            at: the version of the policy that chose them.
            step: what the environments answered.
            chain: id of the compressor chain behind that policy.
        """
        t = self._t
        self._frames[t + 1] = step.observations[:, self._newest]
        self._actions[t], self._log_probs[t] = actions, log_probs
        rewards = step.rewards
        self._rewards[t] = np.clip(rewards, -1.0, 1.0) if self._clip_rewards else rewards
        terminated = step.terminated
        if self._life_loss_ends:
            terminated = terminated | step.life_lost
        self._terminated[t], self._truncated[t] = terminated, step.truncated
        self._valid[t] = ~step.reset
        self._versions[t] = at.version
        self._generation = at.generation if t == 0 else min(self._generation, at.generation)
        self._chain = chain
        if step.reset.any():
            self._mark_resets(t, step)
        ended = step.terminated | step.truncated
        if ended.any():  # a fault in the reset step that follows takes nothing of this episode
            self._episode_start[ended] = t + 1
        self._t = t + 1
        self._observations = step.observations

    def take(self) -> CollectedUnroll:
        """The full unroll; its arrays are given away and the next one has begun.

        Raises:
            RuntimeError: it is not full yet.
        """
        if not self.full:
            raise RuntimeError(f"unroll: {self._t} of {self._length} steps collected")
        fields: dict[str, Any] = {
            "frames": self._frames,
            "history": self._history,
            "reset_index": None,
            "reset_history": None,
            "actions": self._actions,
            "behaviour_log_probs": self._log_probs,
            "rewards": self._rewards,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "valid": self._valid,
            "versions": self._versions,
        }
        if self._reset_index and self._history is not None:
            fields["reset_index"] = np.array(self._reset_index, np.int32)
            fields["reset_history"] = np.stack(self._reset_history)
        dropped = {"env_fault": self._faulted_steps} if self._faulted_steps else {}
        steps = int(np.count_nonzero(self._valid))
        collected = CollectedUnroll(fields, self._generation, steps, dropped, self._chain)
        self._open(self._observations)
        return collected

    def _open(self, observations: NDArray[Any]) -> None:
        length, width = self._length, self._num_envs
        first = observations[:, self._newest]
        self._frames = np.empty((length + 1, *first.shape), first.dtype)
        self._frames[0] = first
        self._history = observations[:, self._older].copy() if self._stacked else None
        self._actions = np.empty((length, width), np.int32)
        self._log_probs = np.empty((length, width), np.float32)
        self._rewards = np.empty((length, width), np.float32)
        self._terminated = np.empty((length, width), np.bool_)
        self._truncated = np.empty((length, width), np.bool_)
        self._valid = np.empty((length, width), np.bool_)
        self._versions = np.empty(length, np.int64)
        self._reset_index: list[int] = []
        self._reset_history: list[NDArray[Any]] = []
        self._episode_start = np.zeros(width, np.int64)
        self._faulted_steps = 0
        self._generation = -1
        self._t = 0
        self._observations = observations

    def _mark_resets(self, t: int, step: EnvStep) -> None:
        for b in np.flatnonzero(step.reset):
            self._reset_index.append((t + 1) * self._num_envs + int(b))
            if self._history is not None:
                self._reset_history.append(step.observations[b, self._older].copy())
            if step.faulted[b]:
                # The episode ended in a failure: nothing of it that is still here is learned.
                episode = slice(self._episode_start[b], t)
                self._faulted_steps += int(np.count_nonzero(self._valid[episode, b]))
                self._valid[episode, b] = False
                self._truncated[t, b] = True
            self._episode_start[b] = t + 1
