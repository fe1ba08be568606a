"""The actor: steps groups of environments and ships what happened as unrolls."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from aclearn.config import ActorsConfig, Config
from aclearn.envs import VectorEnv, make_vector_env
from aclearn.launch import stand_back
from aclearn.launch.resources import keep_freed_memory
from aclearn.policies import Architecture
from aclearn.rollout import EpisodeTracker, UnrollBuilder, UnrollCounter
from aclearn.telemetry import WaitMeter
from aclearn.wire import Beat
from services.action_sources import ActionSource, Choice, LocalActions, PredictedActions
from services.policies import architecture_of
from services.policy_client import make_policy
from services.role import MOST_EPISODES, Membership, PeerLink, RoleContext, exit_status
from services.unroll_sender import UnrollSender

_LOGGER = logging.getLogger(__name__)


@dataclass
class Group:
    """Environments that are stepped together, and their unroll in the making."""

    env: VectorEnv
    builder: UnrollBuilder
    episodes: EpisodeTracker
    choice: Choice | None = None


class Actor:
    """The loop over groups: while one group's environments step, another's actions are chosen.

    Args:
        groups: with their environments not yet reset.
        actions: where actions come from.
        counter: gives unrolls their place.
        sender: ships them.
        proceed: called between any two steps and while waiting; False ends the loop.
        meter: measures where the time goes.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        actions: ActionSource,
        counter: UnrollCounter,
        sender: UnrollSender,
        proceed: Callable[[], bool],
        meter: WaitMeter,
    ) -> None:
        self._groups, self._actions = groups, actions
        self._counter, self._sender = counter, sender
        self._proceed, self._meter = proceed, meter
        for group in groups:
            group.env.between_attempts = self._sign_of_life
        self._returns: deque[float] = deque(maxlen=MOST_EPISODES)
        self._lengths: deque[int] = deque(maxlen=MOST_EPISODES)
        self._episodes = 0

    @property
    def env_steps(self) -> int:
        """Agent steps taken, those of unfinished unrolls included."""
        return self._counter.env_steps + sum(group.builder.steps for group in self._groups)

    def run(self) -> None:
        """Act until `proceed` says stop."""
        for index, group in enumerate(self._groups):
            observations = group.env.reset()
            group.builder.begin(observations)
            self._actions.request(index, observations)
        while True:
            for index, group in enumerate(self._groups):
                if not (self._step(index, group) and self._look_around()):
                    return

    def close(self) -> None:
        """Ask for nothing more; the environments stay open."""
        self._actions.close()

    def _sign_of_life(self) -> None:
        # what it answers is asked again after the step
        self._proceed()

    def _look_around(self) -> bool:
        """What is due between two steps; False when the actor must stop."""
        with self._meter.part("wire"):
            if not self._proceed():
                return False
            self._sender.poll()
        self._actions.poll()
        return True

    def _step(self, index: int, group: Group) -> bool:
        """One turn of a group: take its steps' results and ask, or take the answer and step."""
        if group.choice is None:
            choice = self._actions.collect(index, self._proceed)
            if choice is None:
                return False
            group.choice = choice
            with self._meter.waiting("emulator"):
                group.env.send(choice.actions.astype(np.int64))
            return True
        with self._meter.waiting("emulator"):
            step = group.env.recv()
        self._actions.request(index, step.observations)
        choice, group.choice = group.choice, None
        with self._meter.part("encode"):
            group.builder.add(choice.actions, choice.log_probs, choice.at, step, choice.chain)
            for episode in group.episodes.update(step):
                self._returns.append(episode.return_)
                self._lengths.append(episode.length)
                self._episodes += 1
            if not group.builder.full:
                return True
            sequence, unroll = self._counter.ship(group.builder.take())
        with self._meter.part("wire"):
            return self._sender.send(sequence, unroll, self._proceed)

    def beat(self, final: bool) -> Beat:
        """What the actor says of itself; hands over the episodes that ended since the last one."""
        returns, lengths = list(self._returns), list(self._lengths)
        self._returns.clear()
        self._lengths.clear()
        counters = {
            "env_steps": self.env_steps,
            "episodes": self._episodes,
        }
        if isinstance(self._actions, LocalActions):
            counters["predictions"] = self._actions.predictions
        return Beat(
            state="stopping" if final else "acting",
            counters=counters,
            gauges={
                "env_faults": float(sum(sum(group.env.faults.values()) for group in self._groups)),
                **self._sender.gauges(),
                **self._actions.gauges(),
            },
            dropped=dict(self._counter.dropped),
            waits=self._meter.seconds(),
            episode_returns=returns,
            episode_lengths=lengths,
            final=final,
            note="",
            parts=self._meter.parts(),
        )


def make_groups(config: Config, *, actor_index: int, restarts: int = 0) -> list[Group]:
    """The environments of one actor, each group with seeds of its own.

    Raises:
        EnvironmentFailure: they cannot be made.
    """
    actors = config.actors
    groups = []
    for g in range(actors.groups):
        first = (actor_index * actors.groups + g) * actors.envs_per_group
        env = make_vector_env(
            config.env,
            num_envs=actors.envs_per_group,
            seed=environment_seed(config.run.seed, first, restarts),
            step_timeout_s=actors.step_timeout_s,
            max_faults=actors.max_env_faults,
            threads=actors.emulator_threads,
        )
        builder = UnrollBuilder(
            env.spec,
            num_envs=actors.envs_per_group,
            length=actors.unroll_length,
            clip_rewards=config.env.clip_rewards,
            life_loss_ends=config.env.life_loss_ends,
        )
        groups.append(Group(env, builder, EpisodeTracker(actors.envs_per_group)))
    return groups


def environment_seed(run_seed: int, first_env: int, restarts: int = 0) -> int:
    """The seed of environment `first_env`; environments of different runs do not share seeds.

    An actor that was started again has others: what killed it may be what the old ones lead to.
    """
    return (run_seed * 100_003 + restarts * 15_485_863 + first_env) % (2**31 - 2**16)


def make_actions(
    actors: ActorsConfig,
    context: RoleContext,
    membership: Membership,
    architecture: Architecture,
    meter: WaitMeter,
) -> ActionSource:
    """The action source that `actors.inference` names."""
    if actors.inference == "predictor":
        link = PeerLink(context, "predictor", "predictions", context.index)
        return PredictedActions(link, lambda: link.follow(membership), meter)
    # on the processor: a GPU is for predictors, which share it; each actor would take its own
    # half gigabyte of it and wait for the others
    runtime, client = make_policy(
        context, architecture, actors.runtime, max_batch=actors.envs_per_group, device="cpu"
    )
    rng = np.random.default_rng((context.config.run.seed, context.index, 1, context.restarts))
    return LocalActions(runtime, client, rng, lambda: client.poll(membership), meter)


def run_actor(context: RoleContext) -> int:
    """Run one actor until it is told to stop; its exit status.

    Raises:
        EnvironmentFailure: the environments cannot be made or have failed too often.
    """
    keep_freed_memory()
    config = context.config
    stand_back(config.actors.nice)
    groups = make_groups(config, actor_index=context.index, restarts=context.restarts)
    actor: Actor | None = None

    def beat(final: bool) -> Beat:
        assert actor is not None  # the membership ticks only after the actor is made
        return actor.beat(final)

    membership = Membership(
        context.connect(context.monitor),
        hello=context.hello({}),
        beat=beat,
        beat_every_s=config.monitor.beat_every_s,
        health=context.health,
    )

    def proceed() -> bool:
        membership.tick()
        return not context.stop and membership.stop_reason is None

    meter = WaitMeter()
    architecture = architecture_of(config, groups[0].env.spec)
    actor = Actor(
        groups,
        actions=make_actions(config.actors, context, membership, architecture, meter),
        counter=UnrollCounter(context.name),
        sender=UnrollSender(
            PeerLink(context, "trainer", "unrolls"),
            membership,
            most_unacknowledged=config.actors.unacknowledged_unrolls,
            meter=meter,
        ),
        proceed=proceed,
        meter=meter,
    )
    try:
        actor.run()
    finally:
        actor.close()
        membership.leave()
        for group in groups:
            group.env.close()
    return exit_status(context.stop, run_is_over=membership.run_is_over)
