"""Builds a predictor from its parts."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from aclearn.control.directives import SetWorkers
from services.policy.client import PolicyClient, make_policy_client
from services.policy.factory import architecture_of, unroll_spec_of
from services.predictor.server import PredictorServer, Served, make_queue, request_bytes
from services.role.context import RoleContext
from services.role.loop import MonitoredRole, Role
from services.role.metrics import sums_of
from services.role.seeds import Use


def make_predictor(context: RoleContext) -> Role:
    """Create one predictor."""
    config, spec = context.config, context.run.env_spec
    assert spec is not None  # the role needs an environment
    clients: list[PolicyClient] = []
    served: dict[str, Served] = {}
    largest = 0
    for policy, its in spec.by_policy(config.patterns).items():
        own = config.of_policy(policy)
        architecture, unrolls = architecture_of(own, its).acting(), unroll_spec_of(own, its)
        client = make_policy_client(
            context,
            architecture,
            config.predictor.runtime,
            max_batch=config.predictor.max_batch,
            threads=config.predictor.threads,
            # bit-reproducible only on the CPU
            device="cpu" if config.run.deterministic else config.predictor.device,
            policy=policy,
        )
        clients.append(client)
        explores = own.loss.acting == "epsilon"
        served[policy] = Served(
            partial(getattr, client, "acting"), architecture, unrolls.most_rows, explores
        )
        largest = max(largest, request_bytes(unrolls))

    def generator(worker: int) -> np.random.Generator:
        acting = clients[0].acting
        assert acting is not None  # a worker asks with its first batch
        return context.seeds(acting.at.generation).generator(Use.PREDICTIONS, worker)

    server, endpoint = context.serve("predictions", array_bytes=largest)
    predictor = PredictorServer(
        server,
        make_queue(config, context.clocks.decisions),
        served,
        generator=generator,
        parameters=config.actors.behaviour_parameters,
        clock=context.clocks.decisions,
        inline=context.inline,
    )
    predictor.resize(config.predictor.workers)

    def work(timeout_s: float) -> None:
        with predictor.meter.part("swap"):
            for client in clients:
                client.poll(monitor)
        if all(client.acting is not None for client in clients):
            predictor.step(timeout_s)
        else:
            # requests wait in the socket until there is a policy
            with predictor.meter.waiting("weights"):
                time.sleep(timeout_s)

    monitor = context.join(
        lambda: predictor.heartbeat(sums_of(client.gauges() for client in clients)),
        {"predictions": endpoint},
        on={SetWorkers: lambda wanted: predictor.resize(wanted.count)},
    )
    return MonitoredRole(monitor, predictor.meter, work, predictor.close)
