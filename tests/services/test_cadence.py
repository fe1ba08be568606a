"""A compressor's share of a core: when it may compress again, and what its gauge says."""

from __future__ import annotations

import numpy as np
import pytest
from made_compressors import make_moody, some_tensors

from aclearn.wire import Weights
from services.cadence import Cadence, CpuShare
from services.compressor import refresh


@pytest.mark.parametrize(
    ("cpu_s", "expected"), [(0.01, 100.2), (0.05, 100.2), (0.5, 102.0), (0.0, 100.2)]
)
def test_the_next_compression_waits_for_its_share_of_a_core(cpu_s, expected) -> None:
    cadence = Cadence(every_s=0.2, cpu_share=0.25)
    assert cadence.due(99.0, 7.0)
    cadence.begin(100.0, 7.0)
    cadence.done(7.0 + cpu_s)
    assert not cadence.due(expected - 0.001, 7.0 + cpu_s)
    assert cadence.due(expected + 0.001, 7.0 + cpu_s)


class EagerLine:
    """A line to a trainer that has newer weights whenever they are wanted.

    Each message costs `unpack_s` seconds of a core.
    """

    def __init__(self, architecture, cpu, unpack_s: float) -> None:
        self._architecture, self._cpu, self._unpack_s = architecture, cpu, unpack_s
        self._version = 0

    def poll(self, membership, known, *, wanted):
        if not wanted:
            return None, None
        self._cpu.now += self._unpack_s
        self._version += 1
        weights = Weights(0, self._version, some_tensors(self._architecture, self._version))
        return weights, np.ones((2, *self._architecture.observation_shape), np.float32)


@pytest.mark.parametrize(
    ("unpack_s", "beside_s", "gap_s"),
    [
        (0.0, 0.0, 1.0),  # 0.5 s each, at half a core
        (0.125, 0.0, 1.25),
        # a sixteenth of a core beside: 8/7 s, of which 0.5 s + 1/14 s are a half, and one looks
        # four times a second
        (0.0, 0.0625 / 4, 1.25),
        (0.0, 0.0625, 2.0),  # a quarter of a core beside: 0.5 s + 0.5 s
        (0.0, 0.25, 4.0),  # a whole core: no more than four times the gap that it has by itself
    ],
)
def test_all_that_the_process_uses_counts_into_the_gap_between_compressions(
    tools, unpack_s, beside_s, gap_s
) -> None:
    clock, cpu = tools.Clock(), tools.Clock(3.0)
    link, compressor = make_moody(tools)
    line = EagerLine(tools.flat, cpu, unpack_s)
    cadence = Cadence(every_s=0.1, cpu_share=0.5)
    starts = []

    def work(tensors):
        starts.append(clock.now)
        cpu.now += 0.5
        return tensors

    link.spoil = work
    for _ in range(80):
        refresh(compressor, line, cadence, tools.KnownPeers(), clock=clock, cpu_clock=cpu)
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
