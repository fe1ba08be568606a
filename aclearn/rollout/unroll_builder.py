"""Builds unrolls, T consecutive steps of B environments, and counts an actor's steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from aclearn.types import ActionBatch, EnvStep, Unroll, UnrollSpec
from aclearn.types.observation_spec import Observations


@dataclass
class UnrollCounter:
    """Counts one actor's unrolls and their agent steps.

    Several groups fill unrolls in parallel; they are counted in the order of sending, so that the
    trainer can tell a gap from a delay.

    Attributes:
        sequence: number of the newest unroll.
        env_steps: agent steps in all of them.
        dropped: reason → number of invalid steps among them.
    """

    sequence: int = 0
    env_steps: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def ship(self, steps: int, dropped: Mapping[str, int]) -> None:
        """Count one more unroll: its valid steps, and the others by reason."""
        self.sequence += 1
        self.env_steps += steps + sum(dropped.values())
        for reason, count in dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count


class UnrollBuilder:
    """Collects one group's steps into unrolls; no socket, no clock.

    `begin` with the first observations, then `add` each step; when `full`, `take` the unroll. The
    next one starts from the last step's observations.

    Args:
        clip_rewards: learn from rewards clipped to [-1, 1].
        life_loss_ends: a lost life terminates the episode for the learner, not for the game.
        actor, first_row: see `Unroll`.
    """

    def __init__(
        self,
        spec: UnrollSpec,
        *,
        num_envs: int,
        clip_rewards: bool,
        life_loss_ends: bool,
        actor: int = 0,
        first_row: int = 0,
    ) -> None:
        self._actor, self._first_row = actor, first_row
        self._spec, self._num_envs = spec, num_envs
        self._clip_rewards, self._life_loss_ends = clip_rewards, life_loss_ends
        leaves = spec.env.observation.items()
        self._newest = {name: leaf.newest for name, leaf in leaves}
        self._older = {name: leaf.older for name, leaf in leaves if leaf.frame_stack > 1}
        self._t, self._generation = 0, -1
        self._zero_state = tuple(np.zeros((num_envs, *s), np.float32) for s in spec.state)
        self._state = self._zero_state
        # so that `steps` is 0 while the environments are being reset
        self._valid = np.zeros((0, num_envs), np.bool_)
        self._faulted_steps = 0

    def begin(self, observations: Observations, masks: NDArray[np.bool_] | None = None) -> None:
        """Start the first unroll at `observations`, leaf → `[B, *shape]`.

        `masks` `[B, A]` are the actions that they allow, where the environments have masks.
        """
        self._open(observations, masks)

    @property
    def full(self) -> bool:
        """Whether T steps have been added."""
        return self._t == self._spec.length

    @property
    def steps(self) -> int:
        """Agent steps in the unfinished unroll, masked ones included."""
        return int(np.count_nonzero(self._valid[: self._t])) + self._faulted_steps

    def add(
        self, choice: ActionBatch, step: EnvStep, masks: NDArray[np.bool_] | None = None
    ) -> None:
        """Append a step and the actions that led to it.

        `masks` are those of the observations that the step reached, as of `begin`.
        """
        t = self._t
        for name, newest in self._newest.items():
            self._frames[name][t + 1] = step.observations[name][:, newest]
        self._actions[t], self._log_prob[t] = choice.actions, choice.log_prob
        if self._parameters is not None:
            self._parameters[t] = choice.parameters
        if self._masks is not None:
            self._masks[t + 1] = masks
        if t == 0:
            self._state = choice.state or self._zero_state
        rewards = step.rewards
        self._rewards[t] = rewards.clip(-1.0, 1.0) if self._clip_rewards else rewards
        terminated = step.terminated
        if self._life_loss_ends:
            terminated = terminated | step.life_lost
        self._terminated[t], self._truncated[t] = terminated, step.truncated
        self._valid[t] = ~step.reset
        generation = choice.at.generation
        self._generation = generation if t == 0 else min(self._generation, generation)
        self._versions[t] = choice.at.version
        places = [self._chains.setdefault(id_, len(self._chains)) for id_ in choice.chains]
        index = choice.chain_index
        self._chain_index[t] = places[0] if index is None else np.array(places, np.int32)[index]
        if step.reset.any():
            self._mark_resets(t, step)
        ended = step.terminated | step.truncated
        if ended.any():  # a fault in the following reset step does not affect this episode
            self._episode_start[ended] = t + 1
        self._t = t + 1
        self._observations = step.observations

    def take(self, counter: UnrollCounter) -> Unroll:
        """The full unroll, counted; its arrays belong to the caller, and the next one has begun.

        Raises:
            RuntimeError: it is not full yet.
        """
        if not self.full:
            raise RuntimeError(f"unroll: {self._t} of {self._spec.length} steps collected")
        stacked = bool(self._reset_index and self._older)
        before = counter.env_steps
        dropped = {"env_fault": self._faulted_steps} if self._faulted_steps else {}
        counter.ship(int(np.count_nonzero(self._valid)), dropped)
        unroll = Unroll(
            generation=self._generation,
            env_steps_before=before,
            env_steps_after=counter.env_steps,
            dropped=dict(counter.dropped),
            observations=self._frames,
            history=self._history,
            reset_index=np.array(self._reset_index, np.int32) if stacked else None,
            reset_history={k: np.stack(v) for k, v in self._reset_history.items() if stacked},
            actions=self._actions,
            behaviour_log_prob=self._log_prob,
            rewards=self._rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            valid=self._valid,
            versions=self._versions,
            chains=list(self._chains),
            chain_index=self._chain_index if len(self._chains) > 1 else None,
            behaviour_parameters=self._parameters,
            state=self._state,
            masks=self._masks,
            policy=self._spec.policy,
            actor=self._actor,
            first_row=self._first_row,
        )
        self._open(self._observations, None if self._masks is None else self._masks[-1])
        return unroll

    def _open(self, observations: Observations, masks: NDArray[np.bool_] | None) -> None:
        spec, action = self._spec, self._spec.env.action
        steps = spec.length, self._num_envs
        self._frames = {}
        for name, newest in self._newest.items():
            first = observations[name][:, newest]
            frames = np.empty((spec.length + 1, *first.shape), first.dtype)
            frames[0] = first
            self._frames[name] = frames
        older = self._older.items()
        self._history = {name: observations[name][:, where].copy() for name, where in older}
        self._actions = np.empty((*steps, *action.shape), action.dtype)
        self._log_prob = np.empty(steps, np.float32)
        wanted = spec.parameters
        self._parameters = np.empty((*steps, wanted), np.float32) if wanted else None
        self._masks = None
        if spec.env.masked:
            self._masks = np.empty((spec.length + 1, self._num_envs, action.mask_width), np.bool_)
            self._masks[0] = masks
        self._rewards = np.empty(steps, np.float32)
        self._terminated = np.empty(steps, np.bool_)
        self._truncated = np.empty(steps, np.bool_)
        self._valid = np.empty(steps, np.bool_)
        self._versions = np.empty(spec.length, np.int64)
        self._chains: dict[str, int] = {}
        self._chain_index = np.empty(steps, np.int32)
        self._reset_index: list[int] = []
        self._reset_history: dict[str, list[NDArray[np.generic]]] = {k: [] for k in self._older}
        self._episode_start = np.zeros(self._num_envs, np.int64)
        self._faulted_steps = 0
        self._t = 0
        self._observations = observations

    def _mark_resets(self, t: int, step: EnvStep) -> None:
        if self._spec.env.action.numbers:
            # ignored actions, among them those that no environment can take
            self._actions[t, step.reset] = self._log_prob[t, step.reset] = 0.0
            if self._parameters is not None:
                self._parameters[t, step.reset] = 0.0
        for b in np.flatnonzero(step.reset):
            self._reset_index.append((t + 1) * self._num_envs + int(b))
            for name, older in self._older.items():
                self._reset_history[name].append(step.observations[name][b, older].copy())
            if step.faulted[b]:
                # The episode ended in a fault: its steps in this unroll must not be learned.
                episode = slice(self._episode_start[b], t)
                self._faulted_steps += int(np.count_nonzero(self._valid[episode, b]))
                self._valid[episode, b] = False
                self._truncated[t, b] = True
            self._episode_start[b] = t + 1
