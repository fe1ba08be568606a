"""The compressor: makes artifacts of new policies within its CPU budget."""

from __future__ import annotations

import time
from collections.abc import Callable

from aclearn.control.directives import SetChain
from aclearn.types import PolicyVersion
from aclearn.wire import MAX_FRAME_BYTES, Heartbeat
from services.compressor.core import Compressor
from services.compressor.server import serve_artifacts
from services.compressor.trainer_client import TrainerClient
from services.policy.factory import architecture_of, make_ladder
from services.role.context import RoleContext
from services.role.cpu_budget import CpuBudget, CpuShare
from services.role.loop import MonitoredRole, Role
from services.role.metrics import RoleMetrics
from services.role.monitor_client import MonitorClient
from services.role.request_client import PeerLink
from services.role.seeds import Use

#: Share of the kept observations in one request.
_OBSERVATIONS_SHARE = 0.25


def refresh(
    compressor: Compressor,
    line: TrainerClient,
    cpu_budget: CpuBudget,
    membership: MonitorClient,
    *,
    clock: Callable[[], float] = time.monotonic,
    cpu_clock: Callable[[], float] = time.process_time,
) -> None:
    """Take the trainer's messages, compress new weights, request more when due."""
    # before the weights are unpacked, which counts as compression time
    now, cpu_s = clock(), cpu_clock()
    due = cpu_budget.due(now, cpu_s)
    with compressor.meter.part("pull"):
        weights, visited = line.poll(membership, compressor.known, wanted=due)
        if visited:
            compressor.observe(visited)
    if weights is not None:
        cpu_budget.begin(now, cpu_s)
        with compressor.meter.part("compress"):
            compressor.compress(PolicyVersion(weights.generation, weights.version), weights.tensors)
        cpu_budget.done(cpu_clock())


def make_compressor(context: RoleContext) -> Role:
    """Create one compressor.

    Raises:
        ChainError: the chain cannot compress this policy.
    """
    config = context.config
    assert context.run.env_spec is not None  # the role needs an environment
    architecture = architecture_of(config, context.run.env_spec).acting()
    chains = make_ladder(config, architecture, agents=context.run.env_spec.agents)
    compressor = Compressor(
        chains,
        architecture,
        config.compressor,
        seed=0,  # another one before the first weights
        clock=context.clocks.decisions,
    )
    server, endpoint = context.serve("artifacts")
    kept = config.compressor.observations + config.compressor.fidelity_observations
    largest = max(leaf.nbytes for leaf in context.run.env_spec.observation.values())
    fitting = MAX_FRAME_BYTES // largest  # of one message
    trainer = TrainerClient(
        PeerLink(context, "weights"),
        observations=max(1, min(fitting, round(kept * _OBSERVATIONS_SHARE))),
        observations_every_s=config.compressor.observations_every_s,
        clock=context.clocks.decisions,
    )
    cpu_budget = CpuBudget(every_s=config.compressor.every_s, cpu_share=config.compressor.cpu_share)
    cpu_share = CpuShare(context.clocks.decisions, context.clocks.cpu)
    metrics = RoleMetrics(compressor.meter, [server])
    sent = 0
    seeded_for: int | None = None

    def heartbeat() -> Heartbeat:
        fields = compressor.heartbeat_fields()
        fields["counters"]["artifacts_sent"] = sent
        fields["gauges"]["cpu_share"] = cpu_share.take()
        return metrics.heartbeat(**fields)

    def work(timeout_s: float) -> None:
        nonlocal sent, seeded_for
        if monitor.generation not in (None, seeded_for):
            seeded_for = monitor.generation
            compressor.ladder.seed(context.seeds(seeded_for).number(Use.COMPRESSION))
        sent += serve_artifacts(server, compressor, timeout_s)
        refresh(
            compressor,
            trainer,
            cpu_budget,
            monitor,
            clock=context.clocks.decisions,
            cpu_clock=context.clocks.cpu,
        )

    monitor = context.join(
        heartbeat,
        {"artifacts": endpoint},
        on={SetChain: lambda wanted: compressor.set_rung(wanted.rung)},
    )
    return MonitoredRole(monitor, compressor.meter, work)
