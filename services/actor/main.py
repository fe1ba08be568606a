"""Builds an actor from its parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from aclearn.config import Config
from aclearn.control.directives import SetMix
from aclearn.distributions import distribution_of
from aclearn.rollout import EpisodeCohorts, InfoMetrics
from aclearn.telemetry import WaitMeter
from aclearn.types import UnrollSpec
from aclearn.wire import Heartbeat
from services.actor.action_sources import ActionSource, LocalActions
from services.actor.core import Actor, Player
from services.actor.env_groups import make_groups, seed_groups
from services.actor.fresh_weights import FreshWeights, unrolls_of_a_version
from services.actor.predictor_client import PredictorClient
from services.actor.unroll_sender import UnrollSender
from services.policy.client import make_policy_client
from services.policy.factory import architecture_of, unroll_spec_of
from services.role.context import RoleContext
from services.role.loop import MonitoredRole, Role
from services.role.monitor_client import MonitorClient
from services.role.request_client import PeerLink
from services.role.seeds import Use
from services.roles import TRAINER


def make_actions(
    config: Config,
    context: RoleContext,
    make_rng: Callable[[], np.random.Generator],
    monitor: MonitorClient,
    unrolls: UnrollSpec,
    meter: WaitMeter,
) -> ActionSource:
    """The action source that `actors.inference` names, of one policy.

    Args:
        config: of the policy.
        make_rng: makes the random numbers of actions, where they are sampled here.
        unrolls: what its unrolls have or would have.
    """
    actors, policy = config.actors, unrolls.policy
    architecture = architecture_of(config, unrolls.env).acting()
    suffix = f"-{policy}" if context.config.policies else ""
    if actors.inference == "predictor":
        link = PeerLink(context, "predictions", context.index, suffix)
        return PredictorClient(
            link,
            monitor,
            meter,
            architecture.action_spec,
            parameters=unrolls.parameters,
            state=unrolls.state,
            policy=policy,
            clock=context.clocks.decisions,
        )
    # on the CPU: predictors share a GPU; each actor would use half a gigabyte of its memory and
    # wait for the others
    make_client = partial(
        make_policy_client,
        context,
        architecture,
        actors.runtime,
        max_batch=unrolls.most_rows,
        device="cpu",
        policy=policy,
    )
    distribution = distribution_of(architecture.action_spec)
    fresh = None
    if actors.wait_for_weights:
        fresh = FreshWeights(
            unroll_length=actors.unroll_length,
            unrolls=unrolls_of_a_version(
                context.config.trainer.unrolls_per_batch,
                actor=context.index,
                actors=actors.processes,
                ranks=context.config.ranks,
            ),
            clock=context.clocks.decisions,
        )
    return LocalActions(
        make_client(),
        distribution,
        make_rng(),
        lambda client: client.poll(monitor),
        meter,
        partial(make_client, uncompressed=True),
        fresh,
    )


def make_actor(context: RoleContext) -> Role:
    """Create one actor; its steps raise `EnvironmentFailure` if the environments fail too often.

    It acts once it knows the trainer's generation, which chooses its seeds.

    Raises:
        EnvironmentFailure: the environments cannot be made.
    """
    config = context.config
    names = config.policy_names()
    cohorts = {policy: EpisodeCohorts(context.clocks.decisions) for policy in names}
    info_metrics = InfoMetrics(config.env.info_metrics, config.env.id)
    groups = make_groups(config, cohorts, info_metrics, index=context.index)
    meter = WaitMeter()
    specs = {group.policy: group.env.spec for group in groups}
    actor: Actor | None = None
    mix = SetMix(1.0)

    def set_mix(directive: SetMix) -> None:
        nonlocal mix
        mix = directive
        if actor is not None:
            actor.set_mix(mix.compressed_share)

    monitor = context.join(
        lambda: Heartbeat() if actor is None else actor.heartbeat(),
        on={SetMix: set_mix} if config.mixes_policies else {},
    )
    for group in groups:
        group.env.between_attempts = monitor.tick

    def begin(generation: int) -> Actor:
        seeds = context.seeds(generation)
        seed_groups(groups, config, seeds)
        players = {}
        for place, (policy, spec) in enumerate(specs.items()):
            own = config.of_policy(policy)
            which = (place,) if config.policies else ()
            make_rng = partial(seeds.generator, Use.ACTIONS, *which)
            unrolls = unroll_spec_of(own, spec, policy)
            actions = make_actions(own, context, make_rng, monitor, unrolls, meter)
            players[policy] = Player(actions, cohorts[policy])
        sender = UnrollSender(
            PeerLink(context, "unrolls", only=TRAINER.rank_for(context.index, config)),
            monitor,
            max_in_flight=config.actors.max_in_flight_unrolls,
            meter=meter,
            clock=context.clocks.decisions,
        )
        return Actor(
            groups,
            players,
            info_metrics=info_metrics,
            sender=sender,
            meter=meter,
        )

    def work(timeout_s: float) -> None:
        nonlocal actor
        if actor is None:
            if monitor.generation is None:
                with meter.waiting("weights"):
                    time.sleep(timeout_s)
                return
            actor = begin(monitor.generation)
            actor.set_mix(mix.compressed_share)
        actor.step(timeout_s)

    def end() -> None:
        if actor is not None:
            actor.close()
        monitor.leave()  # also after an environment failure: the last heartbeat has its episodes
        for group in groups:
            if group.is_last:
                group.env.close()

    return MonitoredRole(monitor, meter, work, end)
