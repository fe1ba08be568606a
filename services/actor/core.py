"""The actor: steps groups of environments and sends unrolls."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aclearn.rollout import ActInput, EpisodeCohorts, FinishedEpisode, InfoMetrics, UnrollCounter
from aclearn.telemetry import WaitMeter
from aclearn.types import State, Unroll, is_compressed, zeroed
from aclearn.types.observation_spec import Observations
from aclearn.wire import Heartbeat
from services.actor.action_sources import ActionSource, LocalActions
from services.actor.env_groups import Group
from services.actor.unroll_sender import UnrollSender
from services.role.metrics import RoleMetrics
from services.role.monitor_client import MOST_EPISODES

_LOGGER = logging.getLogger(__name__)


class Actor:
    """Steps groups in turns: while one group's environments step, another's actions are chosen."""

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        actions: ActionSource,
        counter: UnrollCounter,
        cohorts: EpisodeCohorts,
        info_metrics: InfoMetrics | None = None,
        sender: UnrollSender,
        meter: WaitMeter,
    ) -> None:
        self._groups, self._actions = groups, actions
        self._mixes = [group.mix for group in groups if group.mix]
        self._counter, self._sender = counter, sender
        self._meter, self._metrics = meter, RoleMetrics(meter)
        self._turn: int | None = None  # index of the group; None before the reset
        self._unsent: Unroll | None = None
        self._ended: deque[FinishedEpisode] = deque(maxlen=MOST_EPISODES)
        self._episodes, self._cohorts, self._info_metrics = 0, cohorts, info_metrics
        self._numbers = self._clipped = 0

    @property
    def env_steps(self) -> int:
        """Agent steps so far, including those of unfinished unrolls."""
        return self._counter.env_steps + sum(group.builder.steps for group in self._groups)

    def step(self, timeout_s: float) -> None:
        """One group's turn: take its environments' step and request actions, or act.

        Without actions, or without room for an unroll, it waits up to `timeout_s`; the next step
        tries again.

        Raises:
            EnvironmentFailure: the environments have failed too often.
        """
        if self._turn is None:
            self._begin()
            self._turn = 0
        if self._unsent is None:
            with self._meter.part("wire"):
                self._sender.poll()
            if self._sender.waits:
                self._sender.poll(timeout_s)
                return
            self._actions.poll()
            if self._take_turn(self._turn, timeout_s):
                self._turn = (self._turn + 1) % len(self._groups)
        if self._unsent is not None:
            with self._meter.part("wire"):
                if self._sender.send(self._counter.sequence, self._unsent, timeout_s):
                    self._unsent = None

    def set_mix(self, compressed_share: float) -> None:
        """Play the current rung's policy in this share of the unrolls, from each group's next one.

        It is of episodes where that policy has a state of its own. No effect in groups that play
        one policy.
        """
        if not self._mixes or (before := self._mixes[0].compressed_share) == compressed_share:
            return
        _LOGGER.info("event=compressed_share before=%g now=%g", before, compressed_share)
        for mix in self._mixes:
            mix.compressed_share = compressed_share
        self._actions.hold_original(self._mixes[0].needs_original)

    def close(self) -> None:
        """Cancel requests; the environments stay open."""
        self._actions.close()

    def _begin(self) -> None:
        if self._mixes:
            self._actions.hold_original(self._mixes[0].needs_original)
        for index, group in enumerate(self._groups):
            observations = group.env.reset(group.seed)
            group.builder.begin(observations, group.env.masks)
            original = group.mix.begin() if group.mix else None
            self._request(index, observations, (), (), original)

    def _take_turn(self, index: int, timeout_s: float) -> bool:
        """Whether the group had its turn; False while it waits for actions."""
        group = self._groups[index]
        if group.choice is None:
            group.choice = self._actions.take(index, timeout_s)
            if group.choice is None:
                return False
            if group.noise is not None:
                group.choice = group.noise.explore(group.choice)
            with self._meter.waiting("emulator"):
                group.env.send(group.choice.actions)
            self._count_clipped(group)
            return True
        with self._meter.waiting("emulator"):
            step = group.env.recv()
        choice, group.choice = group.choice, None
        original = None
        if group.mix:
            original = group.mix.advance(step.reset, by_episode=self._actions.has_own_state)
        if group.noise is not None:
            group.noise.begin(step.reset)
        state = zeroed(choice.next_state, step.reset)
        own_state = zeroed(choice.next_own_state, step.reset)
        self._request(index, step.observations, state, own_state, original)
        with self._meter.part("encode"):
            group.builder.add(choice, step, group.env.masks)
            ended = group.episodes.update(step, choice.chains, choice.chain_index)
            self._ended.extend(ended)
            self._episodes += len(ended)
            if group.builder.full:
                self._unsent = group.builder.take(self._counter)
        return True

    def _request(
        self,
        index: int,
        observations: Observations,
        state: State,
        own_state: State,
        original: NDArray[np.bool_] | None,
    ) -> None:
        group = self._groups[index]
        epsilon = group.exploration.next() if group.exploration else None
        given = ActInput(observations, state, group.env.masks, epsilon, own_state)
        self._actions.request(index, given, original)

    def _count_clipped(self, group: Group) -> None:
        spec, choice = group.env.spec.action, group.choice
        if spec.numbers and not spec.squash and choice is not None:
            clipped = spec.clipped(choice.actions)
            self._numbers += clipped.size
            self._clipped += int(np.count_nonzero(clipped))

    def heartbeat(self) -> Heartbeat:
        """The actor's numbers and the episodes that ended since the last heartbeat."""
        ended = list(self._ended)
        self._ended.clear()
        info = self._info_metrics
        cohorts, settled_s, clock_s = self._cohorts.take()
        counters = {
            "env_steps": self.env_steps,
            "episodes": self._episodes,
        }
        if isinstance(self._actions, LocalActions):
            counters["predictions"] = self._actions.predictions
        return self._metrics.heartbeat(
            counters=counters,
            gauges={
                "env_faults": float(sum(sum(group.env.faults.values()) for group in self._groups)),
                **(
                    {"clipped_action_share": self._clipped / self._numbers} if self._numbers else {}
                ),
                **({"compressed_share": self._mixes[0].compressed_share} if self._mixes else {}),
                **({"refused_info": float(info.refused)} if info else {}),
                **self._sender.gauges(),
                **self._actions.gauges(),
            },
            dropped=self._counter.dropped,
            episode_returns=[episode.return_ for episode in ended],
            episode_policies=[_policy_of(episode.chain) for episode in ended],
            cohorts=cohorts,
            settled_s=settled_s,
            clock_s=clock_s,
        )


def _policy_of(chain: str) -> str:
    """The policy that played an episode, in a heartbeat's terms, by the chain of all its steps."""
    if not chain:
        return "mixed"
    return "compressed" if is_compressed(chain) else "original"
