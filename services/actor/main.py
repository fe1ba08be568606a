"""The actor's process."""

from __future__ import annotations

import numpy as np

from aclearn.config import ActorsConfig
from aclearn.distributions import distribution_of
from aclearn.launch import lower_priority
from aclearn.launch.resources import keep_freed_memory
from aclearn.policies import Architecture
from aclearn.rollout import UnrollCounter
from aclearn.telemetry import WaitMeter
from aclearn.wire import Heartbeat
from services.actor.action_sources import ActionSource, LocalActions
from services.actor.core import Actor
from services.actor.env_groups import make_groups
from services.actor.predictor_client import PredictorClient
from services.actor.unroll_sender import UnrollSender
from services.runtime.monitor_client import MonitorClient
from services.runtime.peer_link import PeerLink
from services.runtime.policy_client import make_policy
from services.runtime.policy_factory import architecture_of
from services.runtime.role_context import RoleContext, exit_status


def make_actions(
    actors: ActorsConfig,
    context: RoleContext,
    membership: MonitorClient,
    architecture: Architecture,
    meter: WaitMeter,
) -> ActionSource:
    """The action source that `actors.inference` names."""
    if actors.inference == "predictor":
        link = PeerLink(context, "predictor", "predictions", context.index)
        return PredictorClient(link, lambda: link.follow(membership), meter)
    # on the processor: a GPU is for predictors, which share it; each actor would take its own
    # half gigabyte of it and wait for the others
    runtime, client = make_policy(
        context, architecture, actors.runtime, max_batch=actors.envs_per_group, device="cpu"
    )
    rng = np.random.default_rng((context.config.run.seed, context.index, 1, context.restarts))
    distribution = distribution_of(architecture.action_spec)
    return LocalActions(runtime, client, distribution, rng, lambda: client.poll(membership), meter)


def run_actor(context: RoleContext) -> int:
    """Run one actor until it is told to stop; its exit status.

    Raises:
        EnvironmentFailure: the environments cannot be made or have failed too often.
    """
    keep_freed_memory()
    config = context.config
    lower_priority(config.actors.nice)
    groups = make_groups(config, actor_index=context.index, restarts=context.restarts)
    actor: Actor | None = None

    def heartbeat(final: bool) -> Heartbeat:
        assert actor is not None  # the membership ticks only after the actor is made
        return actor.heartbeat(final)

    membership = MonitorClient(
        context.connect(context.monitor),
        hello=context.hello({}),
        heartbeat=heartbeat,
        heartbeat_every_s=config.monitor.heartbeat_every_s,
        health=context.health,
        number_given=context.number_given,
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
            most_unacknowledged=config.actors.max_in_flight_unrolls,
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
