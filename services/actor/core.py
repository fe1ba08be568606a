"""The actor: steps groups of environments and sends unrolls."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from aclearn.rollout import ActInput, EpisodeCohorts, FinishedEpisode, InfoMetrics, UnrollCounter
from aclearn.telemetry import WaitMeter
from aclearn.types import State, Unroll, is_compressed, zeroed
from aclearn.types.observation_spec import Observations
from aclearn.wire import Heartbeat, PolicyNumbers
from services.actor.action_sources import ActionSource, LocalActions
from services.actor.env_groups import Group
from services.actor.unroll_sender import UnrollSender
from services.role.metrics import RoleMetrics, joined_numbers, sums_of
from services.role.monitor_client import MOST_EPISODES

_LOGGER = logging.getLogger(__name__)


@dataclass
class Player:
    """One policy at an actor: where its actions come from, and what its agents have done.

    Attributes:
        episodes: number of those that have ended.
        ended: the episodes since the last heartbeat.
        numbers, clipped: of the actions that were sent, and those of them beyond their bounds.
    """

    actions: ActionSource
    cohorts: EpisodeCohorts
    counter: UnrollCounter = field(default_factory=UnrollCounter)
    episodes: int = 0
    ended: deque[FinishedEpisode] = field(default_factory=lambda: deque(maxlen=MOST_EPISODES))
    numbers: int = 0
    clipped: int = 0


class Actor:
    """Steps groups in turns: while one group's environments step, another's actions are chosen.

    With several policies each has groups of its own, of agents of the same environments. Unrolls
    of these agents are full in the same step and travel together.

    Args:
        groups: those of the same environments are neighbours.
        players: policy → the actor's part of it.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        players: Mapping[str, Player],
        *,
        info_metrics: InfoMetrics | None = None,
        sender: UnrollSender,
        meter: WaitMeter,
    ) -> None:
        self._groups, self._players = groups, players
        self._mixes = [group.mix for group in groups if group.mix]
        self._sender = sender
        self._meter, self._metrics = meter, RoleMetrics(meter)
        self._turn: int | None = None  # index of the group; None before the reset
        self._unsent: list[Unroll] = []
        self._info_metrics = info_metrics

    @property
    def env_steps(self) -> int:
        """Agent steps so far, including those of unfinished unrolls."""
        return sum(self._steps_of(policy) for policy in self._players)

    def _steps_of(self, policy: str) -> int:
        builders = [g.builder for g in self._groups if g.policy == policy and g.builder is not None]
        counted = self._players[policy].counter.env_steps
        return counted + sum(builder.steps for builder in builders)

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
        if not self._unsent or not self._groups[self._turn - 1].is_last:
            with self._meter.part("wire"):
                self._sender.poll()
            if self._sender.waits:
                self._sender.poll(timeout_s)
                return
            for player in self._players.values():
                player.actions.poll()
            if self._take_turn(self._turn, timeout_s):
                self._turn = (self._turn + 1) % len(self._groups)
        if self._unsent and self._groups[self._turn - 1].is_last:
            # of all policies the same number
            sequence = self._players[self._unsent[0].policy].counter.sequence
            with self._meter.part("wire"):
                if self._sender.send(sequence, self._unsent, timeout_s):
                    self._unsent = []

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
        self._hold_original()

    def close(self) -> None:
        """Cancel requests; the environments stay open."""
        for player in self._players.values():
            player.actions.close()

    def _hold_original(self) -> None:
        if self._mixes:
            for player in self._players.values():
                player.actions.hold_original(self._mixes[0].needs_original)

    def _begin(self) -> None:
        self._hold_original()
        for index, group in enumerate(self._groups):
            observations = group.env.reset(group.seed)
            if group.builder is not None:
                group.builder.begin(observations, group.env.masks)
            original = group.mix.begin() if group.mix else None
            self._request(index, observations, (), (), original)

    def _take_turn(self, index: int, timeout_s: float) -> bool:
        """Whether the group had its turn; False while it waits for actions."""
        group = self._groups[index]
        player = self._players[group.policy]
        if group.choice is None:
            group.choice = player.actions.take(index, timeout_s)
            if group.choice is None:
                return False
            if group.noise is not None:
                group.choice = group.noise.explore(group.choice)
            with self._meter.waiting("emulator"):
                group.env.send(group.choice.actions)
            _count_clipped(player, group)
            return True
        with self._meter.waiting("emulator"):
            step = group.env.recv()
        choice, group.choice = group.choice, None
        original = None
        if group.mix:
            original = group.mix.advance(step.reset, by_episode=player.actions.has_own_state)
        if group.noise is not None:
            group.noise.begin(step.reset)
        state = zeroed(choice.next_state, step.reset)
        own_state = zeroed(choice.next_own_state, step.reset)
        self._request(index, step.observations, state, own_state, original)
        with self._meter.part("encode"):
            ended = group.episodes.update(step, choice.chains, choice.chain_index)
            player.ended.extend(ended)
            player.episodes += len(ended)
            if (builder := group.builder) is not None:
                builder.add(choice, step, group.env.masks)
                if builder.full:
                    self._unsent.append(builder.take(player.counter))
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
        self._players[group.policy].actions.request(index, given, original)

    def heartbeat(self) -> Heartbeat:
        """The actor's numbers and the episodes that ended since the last heartbeat."""
        numbers, clock_s = {}, 0.0
        for policy in self._players:
            numbers[policy], clock_s = self._numbers_of(policy)
        whole = joined_numbers(numbers)
        info = self._info_metrics
        faults = sum(sum(group.env.faults.values()) for group in self._groups if group.is_last)
        return self._metrics.heartbeat(
            gauges={
                "env_faults": float(faults),
                **({"compressed_share": self._mixes[0].compressed_share} if self._mixes else {}),
                **({"refused_info": float(info.refused)} if info else {}),
                **self._sender.gauges(),
                **sums_of(player.actions.gauges() for player in self._players.values()),
                **whole.pop("gauges"),
            },
            clock_s=clock_s,
            **whole,
        )

    def _numbers_of(self, policy: str) -> tuple[PolicyNumbers, float]:
        """What a heartbeat says of one policy, and when by the clock of its episodes."""
        player = self._players[policy]
        ended = list(player.ended)
        player.ended.clear()
        cohorts, settled_s, clock_s = player.cohorts.take()
        counters = {"env_steps": self._steps_of(policy), "episodes": player.episodes}
        if isinstance(player.actions, LocalActions):
            counters["predictions"] = player.actions.predictions
        clipped = player.clipped / player.numbers if player.numbers else None
        numbers = PolicyNumbers(
            counters=counters,
            gauges={} if clipped is None else {"clipped_action_share": clipped},
            dropped=player.counter.dropped,
            episode_returns=[episode.return_ for episode in ended],
            episode_policies=[_policy_of(episode.chain) for episode in ended],
            cohorts=cohorts,
            settled_s=settled_s,
        )
        return numbers, clock_s


def _count_clipped(player: Player, group: Group) -> None:
    spec, choice = group.env.spec.action, group.choice
    if spec.numbers and not spec.squash and choice is not None:
        clipped = spec.clipped(choice.actions)
        player.numbers += clipped.size
        player.clipped += int(np.count_nonzero(clipped))


def _policy_of(chain: str) -> str:
    """The policy that played an episode, in a heartbeat's terms, by the chain of all its steps."""
    if not chain:
        return "mixed"
    return "compressed" if is_compressed(chain) else "original"
