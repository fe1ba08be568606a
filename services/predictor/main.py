"""The predictor's process."""

from __future__ import annotations

import time

from aclearn.wire import ActCancel, ActRequest
from services.predictor.server import PredictorServer, make_queue
from services.runtime.policy_client import make_policy_client
from services.runtime.policy_factory import architecture_of
from services.runtime.role_context import RoleContext

#: Longest wait for a request before the predictor looks at everything else.
_LOOK_EVERY_S = 0.02


def run_predictor(context: RoleContext) -> int:
    """Run one predictor until it is told to stop; its exit status."""
    config = context.config
    architecture = architecture_of(config, context.env_spec)
    policy = make_policy_client(
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
        parameters=config.actors.behaviour_parameters,
    )
    predictor.want(config.predictor.workers)

    with context.join(
        lambda: predictor.heartbeat(policy.gauges()), {"predictions": endpoint}
    ) as monitor:
        try:
            while monitor.goes_on(predictor.meter):
                predictor.want(monitor.workers)
                with predictor.meter.part("swap"):
                    policy.poll(monitor)
                if policy.acting is not None:
                    predictor.serve()
                else:
                    # requests wait in the socket: no policy can answer them yet
                    with predictor.meter.waiting("weights"):
                        time.sleep(_LOOK_EVERY_S)
        finally:
            predictor.close()
    return monitor.exit_status
