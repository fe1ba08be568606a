"""The predictor's process."""

from __future__ import annotations

import time
from dataclasses import replace

from aclearn.launch.resources import keep_freed_memory
from aclearn.wire import ActCancel, ActRequest, Heartbeat
from services.predictor.server import PredictorServer, make_queue
from services.runtime.monitor_client import MonitorClient
from services.runtime.policy_client import make_policy
from services.runtime.policy_factory import architecture_of
from services.runtime.role_context import RoleContext, exit_status

#: Longest wait for a request before the predictor looks at everything else.
_LOOK_EVERY_S = 0.02


def run_predictor(context: RoleContext) -> int:
    """Run one predictor until it is told to stop; its exit status."""
    keep_freed_memory()
    config = context.config
    architecture = architecture_of(config, context.env_spec)
    _, policy = make_policy(
        context,
        architecture,
        config.predictor.runtime,
        max_batch=config.predictor.max_batch,
        threads=config.predictor.threads,
        device=config.predictor.device,
    )
    server, endpoint = context.serve((ActRequest, ActCancel), config.network.ports.predictions)
    predictor = PredictorServer(
        server,
        make_queue(config),
        lambda: policy.acting,
        architecture,
        seed=(config.run.seed, context.index, 2),
    )
    predictor.want(config.predictor.workers)

    def heartbeat(final: bool) -> Heartbeat:
        said = predictor.heartbeat(final)
        return replace(said, gauges={**said.gauges, **policy.gauges()})

    membership = MonitorClient(
        context.connect(context.monitor),
        hello=context.hello({"predictions": endpoint}),
        heartbeat=heartbeat,
        heartbeat_every_s=config.monitor.heartbeat_every_s,
        health=context.health,
        number_given=context.number_given,
    )
    try:
        while not context.stop and membership.stop_reason is None:
            with predictor.meter.part("wire"):
                membership.tick()
            predictor.want(membership.workers)
            with predictor.meter.part("swap"):
                policy.poll(membership)
            if policy.acting is not None:
                predictor.serve()
            else:
                # requests wait in the socket: whoever asked has no policy to act with anyway
                with predictor.meter.waiting("weights"):
                    time.sleep(_LOOK_EVERY_S)
    finally:
        predictor.close()
    membership.leave()
    return exit_status(context.stop, run_is_over=membership.run_is_over)
