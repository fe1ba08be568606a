"""A compressor's share of a core, its next compression, and its time by part."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from aclearn.telemetry import WaitMeter
from aclearn.types import Visited
from aclearn.wire import ArtifactRequest, Envelope, Weights, encode
from compress.methods.quantizer import Quantizer
from services.compressor.main import refresh
from services.compressor.server import ArtifactServer
from services.role.cpu_budget import CpuBudget, CpuShare
from services.role.metrics import RoleMetrics
from tests.support.compressors import make_moody, some_tensors
from tests.support.contexts import seen


@pytest.mark.parametrize(
    ("cpu_s", "expected"), [(0.01, 100.2), (0.05, 100.2), (0.5, 102.0), (0.0, 100.2)]
)
def test_the_next_compression_waits_for_its_share_of_a_core(cpu_s, expected) -> None:
    cpu_budget = CpuBudget(every_s=0.2, cpu_share=0.25)
    assert cpu_budget.due(99.0, 7.0)
    cpu_budget.begin(100.0, 7.0)
    cpu_budget.done(7.0 + cpu_s)
    assert not cpu_budget.due(expected - 0.001, 7.0 + cpu_s)
    assert cpu_budget.due(expected + 0.001, 7.0 + cpu_s)


_FIRST_COMPARISON = """
import time
from aclearn.config import Config, CompressorConfig, EnvConfig, RunConfig
from aclearn.types import PolicyVersion
from services.compressor.core import Compressor
from services.policy.factory import make_ladder
from aclearn.policies import build_architecture
from aclearn.types import ObservationSpec
from tests.support.compressors import some_observations, some_tensors
from tests.support.contexts import seen

flat = build_architecture(
    "flat", ObservationSpec.plain((4,), "float32"), 2, (), (64, 64), "tanh", separate_value=False
)
compressor = CompressorConfig(chain=["distill", "int8", "onnx"])
config = Config(run=RunConfig(name="r"), env=EnvConfig(id="CartPole-v1"), compressor=compressor)
tested = Compressor(make_ladder(config, flat), flat, compressor, seed=1)
tested.compress(PolicyVersion(0, 1), some_tensors(flat, 1))
tested.observe(seen(some_observations(flat, 2048)))
began = time.process_time()
tested.compress(PolicyVersion(0, 2), some_tensors(flat, 2))
print(tested.artifact.chain, time.process_time() - began)
"""


@pytest.mark.nightly
def test_the_first_compression_of_observations_takes_no_time_for_loading_modules() -> None:
    command = [sys.executable, "-c", _FIRST_COMPARISON]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    chain, cpu_s = printed.stdout.split()
    assert chain == f"distill>{Quantizer().id}>onnx"
    assert float(cpu_s) < 0.6  # torch is more than a second, and so is its first optimiser


class EagerLine:
    """A client of a trainer that always has newer weights.

    Each message costs `unpack_s` CPU seconds.
    """

    def __init__(self, architecture, cpu, unpack_s: float) -> None:
        self._architecture, self._cpu, self._unpack_s = architecture, cpu, unpack_s
        self._version = 0

    def poll(self, membership, known, *, wanted):
        if not wanted:
            return None, Visited()
        self._cpu.now += self._unpack_s
        self._version += 1
        weights = Weights(0, self._version, some_tensors(self._architecture, self._version))
        shape = self._architecture.observation["observation"].shape
        return weights, seen(np.ones((2, *shape), np.float32))


@pytest.mark.parametrize(
    ("unpack_s", "beside_s", "gap_s"),
    [
        (0.0, 0.0, 1.0),  # 0.5 s each, at half a core
        (0.125, 0.0, 1.25),
        # a sixteenth of a core beside: 8/7 s, of which 0.5 s + 1/14 s are a half, and one looks
        # four times a second
        (0.0, 0.0625 / 4, 1.25),
        (0.0, 0.0625, 2.0),  # a quarter of a core beside: 0.5 s + 0.5 s
        (0.0, 0.25, 4.0),  # a whole core: at most four times the pause that it needs alone
    ],
)
def test_all_that_the_process_uses_counts_into_the_gap_between_compressions(
    tools, unpack_s, beside_s, gap_s
) -> None:
    clock, cpu = tools.Clock(), tools.Clock(3.0)
    link, compressor = make_moody(tools)
    line = EagerLine(tools.flat, cpu, unpack_s)
    cpu_budget = CpuBudget(every_s=0.1, cpu_share=0.5)
    starts = []

    def work(tensors):
        starts.append(clock.now)
        cpu.now += 0.5
        return tensors

    link.spoil = work
    for _ in range(80):
        refresh(compressor, line, cpu_budget, tools.KnownPeers(), clock=clock, cpu_clock=cpu)
        clock.now += 0.25
        cpu.now += beside_s
    assert len(starts) > 4 and np.diff(starts).tolist() == [gap_s] * (len(starts) - 1)


def test_the_gauge_is_of_the_last_ten_seconds(tools) -> None:
    clock, cpu = tools.Clock(), tools.Clock(5.0)
    share = CpuShare(clock, cpu)
    found = [share.take()]
    for seconds, used_s in [(10.0, 10.0), (10.0, 0.0), (5.0, 2.5), (5.0, 2.5), (10.0, 2.5)]:
        clock.now += seconds
        cpu.now += used_s
        found.append(share.take())
    # at 125 the newest look before 115 is that at 110: 2.5 s of 15
    assert found == pytest.approx([0.0, 1.0, 0.0, 2.5 / 15, 0.5, 0.25])


class SlowServer:
    """Has a request after a second, and takes two seconds to send an answer."""

    def __init__(self, clock) -> None:
        self._clock = clock

    def receive(self, timeout_s):
        self._clock.now += 1.0
        return [(b"actor", Envelope("run", "actor", 1, ArtifactRequest(-1, -1)))]

    def send(self, routing_id, message):
        self._clock.now += 2.0
        return True


def test_a_heartbeat_tells_work_from_waiting_for_requests(tools) -> None:
    clock = tools.Clock()
    link, compressor = make_moody(tools)
    compressor.meter = WaitMeter(clock)

    def work(tensors):
        clock.now += 8.0
        return tensors

    link.spoil = work
    line, cpu_budget = EagerLine(tools.flat, clock, 4.0), CpuBudget(every_s=0.1, cpu_share=1.0)
    for _ in range(2):
        refresh(
            compressor, line, cpu_budget, tools.KnownPeers(), clock=clock, cpu_clock=lambda: 0.0
        )
        artifacts = ArtifactServer(SlowServer(clock), {"default": compressor}, clock)
        artifacts.serve(0.02)
        assert artifacts.sent == 1
    heartbeat = RoleMetrics(compressor.meter).heartbeat(**compressor.heartbeat_fields())
    assert heartbeat.waits == {"requests": 2.0, "total": 30.0}
    assert heartbeat.parts == {
        "pull": 8.0,
        "compress": 16.0,
        "encode": 4.0,
        "waiting for requests": 2.0,
        "total": 30.0,
    }
    assert heartbeat.gauges["artifacts"] == heartbeat.counters["artifacts"] == 2
    encode(heartbeat, run="run", incarnation="compressor", sequence=1)  # it can be sent
