"""Builds an actor from its parts."""

from __future__ import annotations

import time
from functools import partial

from aclearn.config import ActorsConfig
from aclearn.control.directives import SetMix
from aclearn.distributions import distribution_of
from aclearn.policies import Architecture
from aclearn.rollout import EpisodeCohorts, InfoMetrics, UnrollCounter
from aclearn.telemetry import WaitMeter
from aclearn.types import UnrollSpec
from aclearn.wire import Heartbeat
from services.actor.action_sources import ActionSource, LocalActions
from services.actor.core import Actor
from services.actor.env_groups import make_groups, seed_groups
from services.actor.fresh_weights import FreshWeights
from services.actor.predictor_client import PredictorClient
from services.actor.unroll_sender import UnrollSender
from services.policy.client import make_policy_client
from services.policy.factory import architecture_of, unroll_spec_of
from services.role.context import RoleContext
from services.role.loop import MonitoredRole, Role
from services.role.monitor_client import MonitorClient
from services.role.request_client import PeerLink
from services.role.seeds import Seeds, Use
from services.roles import TRAINER


def make_actions(
    actors: ActorsConfig,
    context: RoleContext,
    seeds: Seeds,
    monitor: MonitorClient,
    architecture: Architecture,
    unrolls: UnrollSpec,
    meter: WaitMeter,
) -> ActionSource:
    """The action source that `actors.inference` names."""
    if actors.inference == "predictor":
        link = PeerLink(context, "predictions", context.index)
        return PredictorClient(
            link,
            monitor,
            meter,
            architecture.action_spec,
            parameters=unrolls.parameters,
            state=unrolls.state,
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
    )
    distribution = distribution_of(architecture.action_spec)
    fresh = None
    if actors.wait_for_weights:
        fresh = FreshWeights(
            unroll_length=actors.unroll_length,
            unrolls=-(
                -context.config.trainer.unrolls_per_batch * context.config.ranks // actors.processes
            ),
            clock=context.clocks.decisions,
        )
    return LocalActions(
        make_client(),
        distribution,
        seeds.generator(Use.ACTIONS),
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
    cohorts = EpisodeCohorts(context.clocks.decisions)
    info_metrics = InfoMetrics(config.env.info_metrics, config.env.id)
    groups = make_groups(config, cohorts, info_metrics)
    meter = WaitMeter()
    unrolls = unroll_spec_of(config, groups[0].env.spec)
    architecture = architecture_of(config, unrolls.env).acting()
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
        actions = make_actions(
            config.actors,
            context,
            seeds,
            monitor,
            architecture,
            unrolls,
            meter,
        )
        sender = UnrollSender(
            PeerLink(context, "unrolls", only=TRAINER.rank_for(context.index, config)),
            monitor,
            max_in_flight=config.actors.max_in_flight_unrolls,
            meter=meter,
            clock=context.clocks.decisions,
        )
        return Actor(
            groups,
            actions=actions,
            counter=UnrollCounter(),
            cohorts=cohorts,
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
            group.env.close()

    return MonitoredRole(monitor, meter, work, end)
