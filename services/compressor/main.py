"""The compressor: makes artifacts of new policies within its CPU budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from aclearn.control.directives import SetChain
from aclearn.telemetry import WaitMeter
from aclearn.types import PolicyVersion
from aclearn.wire import MAX_FRAME_BYTES, Heartbeat, PolicyNumbers
from services.compressor.core import Compressor
from services.compressor.server import ArtifactServer
from services.compressor.trainer_client import TrainerClient
from services.policy.factory import architecture_of, make_ladder
from services.role.context import RoleContext
from services.role.cpu_budget import CpuBudget, CpuShare
from services.role.loop import MonitoredRole, Role
from services.role.metrics import RoleMetrics, joined_numbers
from services.role.monitor_client import MonitorClient
from services.role.request_client import PeerLink
from services.role.seeds import Use

#: Share of the kept observations in one request.
_OBSERVATIONS_SHARE = 0.25
#: Seconds between two looks at messages while a version is compressed.
_ATTEND_EVERY_S = 0.05


class CompressionStopped(BaseException):
    """The run has ended while a version was compressed; no link takes it for an error."""


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


@dataclass
class _Part:
    """One policy of a compressor."""

    compressor: Compressor
    trainer: TrainerClient
    budget: CpuBudget


def make_compressor(context: RoleContext) -> Role:
    """Create one compressor, which compresses every policy of the run.

    Raises:
        ChainError: the chain cannot compress one of them.
    """
    config = context.config
    attend_at = 0.0

    def attend() -> None:
        """Within a compression, which may last longer than `monitor.silent_after_s`."""
        nonlocal attend_at
        now = time.monotonic()
        if now < attend_at:
            return
        attend_at = now + _ATTEND_EVERY_S
        if not monitor.goes_on(meter):
            raise CompressionStopped
        artifacts.serve(0.0)

    parts = {
        # in one process each role has its turn
        policy: _part(context, policy, (lambda: None) if context.inline else attend)
        for policy in config.policy_names()
    }
    compressors = {policy: part.compressor for policy, part in parts.items()}
    server, endpoint = context.serve("artifacts")
    artifacts = ArtifactServer(server, compressors, context.clocks.decisions)
    cpu_share = CpuShare(context.clocks.decisions, context.clocks.cpu)
    meter = WaitMeter()
    for each in compressors.values():
        each.meter = meter
    metrics = RoleMetrics(meter, [server])
    seeded_for: int | None = None

    def heartbeat() -> Heartbeat:
        numbers = {p: PolicyNumbers(**each.heartbeat_fields()) for p, each in compressors.items()}
        fields = joined_numbers(numbers)
        fields["counters"]["artifacts_sent"] = artifacts.sent
        fields["gauges"]["cpu_share"] = cpu_share.take()
        return metrics.heartbeat(**fields)

    def work(timeout_s: float) -> None:
        nonlocal seeded_for
        if monitor.generation not in (None, seeded_for):
            seeded_for = monitor.generation
            for compressor in compressors.values():
                compressor.ladder.seed(context.seeds(seeded_for).number(Use.COMPRESSION))
        artifacts.serve(timeout_s)
        with suppress(CompressionStopped):  # the next step ends
            for part in parts.values():
                refresh(
                    part.compressor,
                    part.trainer,
                    part.budget,
                    monitor,
                    clock=context.clocks.decisions,
                    cpu_clock=context.clocks.cpu,
                )

    def set_rung(wanted: SetChain) -> None:
        for compressor in compressors.values():
            compressor.set_rung(wanted.rung)

    monitor = context.join(heartbeat, {"artifacts": endpoint}, on={SetChain: set_rung})
    return MonitoredRole(monitor, meter, work)


def _part(context: RoleContext, policy: str, attend: Callable[[], None]) -> _Part:
    spec = context.run.env_spec
    assert spec is not None  # the role needs an environment
    config = context.config.of_policy(policy)
    its = spec.by_policy(context.config.patterns)[policy]
    settings = config.compressor
    architecture = architecture_of(config, its).acting()
    compressor = Compressor(
        make_ladder(config, architecture, agents=its.agents),
        architecture,
        settings,
        seed=0,  # another one before the first weights
        clock=context.clocks.decisions,
        attend=attend,
    )
    kept = settings.observations + settings.fidelity_observations
    largest = max(leaf.nbytes for leaf in its.observation.values())
    fitting = MAX_FRAME_BYTES // largest  # of one message
    several = context.config.policies
    trainer = TrainerClient(
        PeerLink(context, "weights", suffix=f"-{policy}" if several else ""),
        observations=max(1, min(fitting, round(kept * _OBSERVATIONS_SHARE))),
        observations_every_s=settings.observations_every_s,
        policy=policy,
        clock=context.clocks.decisions,
    )
    # the CPU time of the process counts, so that the share is one of all policies
    budget = CpuBudget(every_s=settings.every_s, cpu_share=settings.cpu_share)
    return _Part(compressor, trainer, budget)
