"""Builds a predictor from its parts."""

from __future__ import annotations

import time

import numpy as np

from aclearn.control.directives import SetWorkers
from services.policy.client import make_policy_client
from services.policy.factory import architecture_of, unroll_spec_of
from services.predictor.server import PredictorServer, make_queue, request_bytes
from services.role.context import RoleContext
from services.role.loop import MonitoredRole, Role
from services.role.seeds import Use


def make_predictor(context: RoleContext) -> Role:
    """Create one predictor."""
    config, spec = context.config, context.run.env_spec
    assert spec is not None  # the role needs an environment
    architecture, unrolls = architecture_of(config, spec).acting(), unroll_spec_of(config, spec)
    policy = make_policy_client(
        context,
        architecture,
        config.predictor.runtime,
        max_batch=config.predictor.max_batch,
        threads=config.predictor.threads,
        # bit-reproducible only on the CPU
        device="cpu" if config.run.deterministic else config.predictor.device,
    )

    def generator(worker: int) -> np.random.Generator:
        assert policy.acting is not None  # a worker asks with its first batch
        return context.seeds(policy.acting.at.generation).generator(Use.PREDICTIONS, worker)

    server, endpoint = context.serve("predictions", array_bytes=request_bytes(unrolls))
    predictor = PredictorServer(
        server,
        make_queue(config, context.clocks.decisions),
        lambda: policy.acting,
        architecture,
        generator=generator,
        most_rows=unrolls.most_rows,
        parameters=config.actors.behaviour_parameters,
        explores=config.loss.acting == "epsilon",
        clock=context.clocks.decisions,
        inline=context.inline,
    )
    predictor.resize(config.predictor.workers)

    def work(timeout_s: float) -> None:
        with predictor.meter.part("swap"):
            policy.poll(monitor)
        if policy.acting is not None:
            predictor.step(timeout_s)
        else:
            # requests wait in the socket until there is a policy
            with predictor.meter.waiting("weights"):
                time.sleep(timeout_s)

    monitor = context.join(
        lambda: predictor.heartbeat(policy.gauges()),
        {"predictions": endpoint},
        on={SetWorkers: lambda wanted: predictor.resize(wanted.count)},
    )
    return MonitoredRole(monitor, predictor.meter, work, predictor.close)
