"""The compressor's requests to the trainer, and versions that fail."""

from __future__ import annotations

import numpy as np

from aclearn.types import PolicyVersion
from aclearn.wire import (
    NoNewerWeights,
    ObservationsRequest,
    Peer,
    RecentObservations,
    Weights,
    WeightsRequest,
)
from services.compressor.main import refresh
from services.compressor.trainer_client import TrainerClient
from services.role.cpu_budget import CpuBudget
from services.role.request_client import PeerLink
from tests.support.compressors import make_moody, some_tensors

_OBSERVED = RecentObservations(
    {"observation": np.ones((2, 3), np.float32)},
    np.array([[True, False], [True, True]]),
    2,
    np.array([True, False]),
    (np.ones((1, 4), np.float32),),
)


def _line(roles, tools, clock, *, observations_every_s: float):
    """The trainer's server, the known peers, and the client."""
    known, trainer = tools.KnownPeers(), roles("trainer-0")
    server, endpoint = trainer.serve("weights")
    known.learn(Peer("trainer", "trainer-0", trainer.incarnation, {"weights": endpoint}))
    line = TrainerClient(
        PeerLink(roles("compressor-0"), "weights"),
        observations=7,
        observations_every_s=observations_every_s,
        clock=clock,
    )
    return server, known, line


def test_the_line_to_the_trainer_asks_for_weights_and_now_and_then_for_observations(
    roles, tools
) -> None:
    clock = tools.Clock()
    server, known, line = _line(roles, tools, clock, observations_every_s=2.0)
    got: list = []
    wanted = False

    def poll() -> None:
        got.append(line.poll(known, PolicyVersion(0, 3), wanted=wanted))

    routing_id, envelope = tools.next_message(server, poll)
    assert envelope.message == ObservationsRequest(7)
    server.send(routing_id, _OBSERVED)
    tools.wait_until(lambda: (poll(), bool(got[-1][1]))[1], "observations have come")
    visited = got[-1][1]
    assert visited.observations["observation"].shape == (2, 3)
    assert (visited.length, visited.sequences) == (2, 1)
    for found, sent in (
        (visited.masks, _OBSERVED.masks),
        (visited.valid, _OBSERVED.valid),
        (visited.state, _OBSERVED.state),
    ):
        np.testing.assert_array_equal(found, sent)
    assert tools.nothing_comes(server, poll)
    wanted = True
    clock.now += 1.0
    routing_id, envelope = tools.next_message(server, poll)
    assert envelope.message == WeightsRequest(0, 3)
    server.send(routing_id, Weights(0, 4, {"a": np.ones(2, np.float32)}))
    tools.wait_until(lambda: (poll(), got[-1][0] is not None)[1], "weights have come")
    wanted = False
    clock.now += 1.1
    assert tools.next_message(server, poll)[1].message == ObservationsRequest(7)


def test_a_failing_chain_ends_in_the_uncompressed_policy_though_no_newer_weights_come(
    roles, tools
) -> None:
    clock = tools.Clock()
    server, known, line = _line(roles, tools, clock, observations_every_s=1e9)
    cpu_budget = CpuBudget(every_s=0.2, cpu_share=0.5)
    link, compressor = make_moody(tools)
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    link.error = ZeroDivisionError("in every version from now on")
    last, starts = Weights(0, 2, some_tensors(tools.flat, 2)), []

    def step() -> None:
        clock.now += 0.01  # slowly: an answer on its way must not be late
        calls = link.calls
        refresh(compressor, line, cpu_budget, known, clock=clock, cpu_clock=lambda: 0.0)
        starts.extend([clock.now] * (link.calls - calls))
        for routing_id, envelope in server.receive(0.01):
            asked = envelope.message
            if isinstance(asked, WeightsRequest):
                newer = (asked.generation, asked.version) < (0, 2)
                server.send(routing_id, last if newer else NoNewerWeights())

    def acts() -> bool:
        step()
        return compressor.artifact.at == PolicyVersion(0, 2)

    tools.wait_until(acts, "the last version acts")
    assert (compressor.artifact.chain, compressor.errors["ZeroDivisionError"]) == ("fuse>onnx", 5)
    assert np.diff(starts).min() > 0.2 - 1e-9 and len(starts) == 5
    for _ in range(10):  # and it is done with
        step()
    assert len(starts) == 5 and compressor.known == PolicyVersion(0, 2)
