"""Weights in the trainer's buffer: read without requests, through restarts, refused if invalid."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from aclearn.config import Config, EnvConfig, RunConfig
from aclearn.errors import SharingError
from aclearn.learning import Learner, PublishedWeights
from aclearn.learning.objective import make_objective
from aclearn.policies.network import PolicyNetwork, tensors_of
from aclearn.shared_weights import HostMemory, request_fds
from aclearn.types import PolicyVersion
from aclearn.wire import NoNewerWeights, Peer, Weights, WeightsRequest, parse_endpoint
from compress import OnnxRuntime
from services.policy.client import PolicyClient
from services.policy.shared_weights import SharedWeightsClient, shared_weights_of
from services.policy.sources import weights_source
from services.role.request_client import PeerLink
from services.trainer.weight_sharing import allocator_for, share_weights
from tests.support.acting import Acting, parameters_of


class Sharing:
    """An actor's policy client, and the trainers whose buffer it reads."""

    def __init__(self, roles, tools) -> None:
        self.roles, self.tools = roles, tools
        self.clock, self.known = tools.Clock(), tools.KnownPeers()
        self.architecture = tools.flat
        self.runtime = Acting(OnnxRuntime(self.architecture))
        self.link = PeerLink(roles("actor-0"), "weights")
        self.shared = SharedWeightsClient(
            self.architecture, "host", HostMemory, self.runtime.load, clock=self.clock
        )
        source = weights_source(self.runtime)
        self.client = PolicyClient(self.link, source, self.shared, clock=self.clock)
        self.published = PublishedWeights()
        self.start_trainer()

    def start_trainer(self, *, buffer: bool = True) -> None:
        self.stop_trainer()
        context = self.roles("trainer-0")
        self.trainer, endpoint = context.serve("weights")
        endpoints = {"weights": endpoint}
        if buffer:
            weights = {"default": (self.published, self.architecture)}
            self.endpoint = share_weights(weights, HostMemory.create, self.roles.monitor)
            endpoints["shared_weights"] = self.endpoint
        self.known.learn(Peer("trainer", "trainer-0", context.incarnation, endpoints))

    def stop_trainer(self) -> None:
        self.published.close()
        self.published = PublishedWeights()

    def weights(self, seed: int) -> dict[str, torch.Tensor]:
        named = dict(PolicyNetwork(self.architecture, seed=seed).named_parameters())
        return {name: named[name].detach() for name in self.architecture.tensor_shapes()}

    def post(self, generation: int, version: int) -> None:
        self.published.publish(PolicyVersion(generation, version), self.weights(version))

    def poll(self, seconds: float = 0.02) -> None:
        self.clock.now += seconds
        self.client.poll(self.known)

    def acts_on(self, version: int) -> bool:
        other = Acting(OnnxRuntime(self.architecture))
        other.load(tensors_of(PolicyNetwork(self.architecture, seed=version)))
        x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
        return np.array_equal(parameters_of(self.client.acting.executable, x), other.parameters(x))


@pytest.fixture
def sharing(roles, tools, monkeypatch):
    # the fd_server is a thread of this process: on a busy machine it is late
    monkeypatch.setattr("services.policy.shared_weights._REQUEST_WITHIN_S", 5.0)
    sharing = Sharing(roles, tools)
    yield sharing
    sharing.stop_trainer()


def test_posted_weights_act_without_a_question(sharing, tools) -> None:
    sharing.poll()
    assert sharing.client.acting is None
    for swaps, version in enumerate((0, 1, 7)):
        sharing.post(0, version)
        sharing.poll(0.005)  # looks are a hundredth of a second apart
        assert sharing.client.swaps == swaps
        sharing.poll(1.1)
        assert sharing.client.at == PolicyVersion(0, version)
        assert sharing.acts_on(version)
    assert sharing.client.swaps == 3
    assert tools.nothing_comes(sharing.trainer, sharing.poll)


def test_a_trainer_that_was_started_again_is_read_from_its_own_buffer(sharing) -> None:
    sharing.post(0, 500)
    sharing.poll()
    assert sharing.client.at == PolicyVersion(0, 500)
    sharing.start_trainer()
    sharing.poll(1.1)  # nothing is posted yet: the old policy stays
    assert sharing.acts_on(500)
    sharing.post(1, 20)
    sharing.poll(1.1)
    assert sharing.client.at == PolicyVersion(1, 20)
    assert sharing.acts_on(20)


@pytest.mark.parametrize("why", ["none", "closed", "other"])
def test_a_trainer_whose_buffer_cannot_be_read_is_asked(sharing, tools, why, caplog) -> None:
    sharing.start_trainer(buffer=why != "none")
    if why == "closed":
        sharing.published._fd_server.close()
    if why == "other":
        sharing.stop_trainer()
        sharing.architecture = tools.images
        sharing.start_trainer()
    routing_id, envelope = tools.next_message(sharing.trainer, sharing.poll)
    assert envelope.message == WeightsRequest(-1, -1)
    weights = tensors_of(PolicyNetwork(tools.flat, seed=3))
    assert sharing.trainer.send(routing_id, Weights(0, 3, weights))
    tools.wait_until(
        lambda: sharing.poll() or sharing.client.swaps == 1, "the weights of the answer act"
    )
    for _ in range(5):  # as often as it asks
        routing_id, _ = tools.next_message(sharing.trainer, lambda: sharing.poll(1.1))
        assert sharing.trainer.send(routing_id, NoNewerWeights())
        assert sharing.link.client.transport.wait(tools.deadline_s)
        sharing.poll()
    assert caplog.text.count("event=weights_not_shared") == (why != "none")
    assert not sharing.shared.open


def test_a_fd_server_that_is_late_is_asked_again_and_weights_are_asked_for_meanwhile(
    sharing, tools, monkeypatch, caplog
) -> None:
    failures = [SharingError("the server sent no file descriptors")] * 2

    def late(path, *, timeout_s):
        if failures:
            raise failures.pop()
        return request_fds(path, timeout_s=timeout_s)

    monkeypatch.setattr("services.policy.shared_weights.request_fds", late)
    sharing.post(0, 5)
    routing_id, envelope = tools.next_message(sharing.trainer, sharing.poll)
    assert envelope.message == WeightsRequest(-1, -1)
    assert sharing.trainer.send(routing_id, NoNewerWeights())
    tools.wait_until(
        lambda: sharing.poll(0.1) or sharing.client.swaps == 1, "the third request is answered"
    )
    assert sharing.client.at == PolicyVersion(0, 5)
    assert not failures and not caplog.records


@pytest.mark.parametrize(("cost_s", "pause_s"), [(0.0001, 0.01), (0.006, 0.2), (0.5, 1.0)])
def test_looks_that_cost_more_come_less_often(sharing, monkeypatch, cost_s, pause_s) -> None:
    sharing.poll()
    copy = sharing.shared.newer_than

    def slow(known):
        sharing.clock.now += cost_s
        return copy(known)

    monkeypatch.setattr(sharing.shared, "newer_than", slow)
    sharing.post(0, 1)
    sharing.poll(1.1)
    assert sharing.client.swaps == 1
    sharing.post(0, 2)
    sharing.poll(pause_s - 0.002)
    assert sharing.client.swaps == 1
    sharing.poll(0.004)
    assert sharing.client.swaps == 2


def test_weights_that_are_not_finite_are_refused_once_and_the_next_ones_taken(sharing) -> None:
    sharing.post(0, 1)
    sharing.poll()
    bad = sharing.weights(2)
    next(iter(bad.values())).view(-1)[3] = float("nan")
    sharing.published.publish(PolicyVersion(0, 2), bad)
    for _ in range(3):
        sharing.poll(1.1)
    assert (sharing.client.refused, sharing.client.at) == (1, PolicyVersion(0, 1))
    assert sharing.acts_on(1)
    sharing.post(0, 3)
    sharing.poll(1.1)
    assert (sharing.client.refused, sharing.client.at) == (1, PolicyVersion(0, 3))


def test_the_fd_server_lies_beside_the_sockets_and_goes_with_the_buffer(sharing) -> None:
    fd_server = Path(parse_endpoint(sharing.endpoint).path)
    assert fd_server.parent == Path(parse_endpoint(sharing.roles.monitor).path).parent
    assert fd_server.is_socket()
    sharing.stop_trainer()
    assert not fd_server.exists()


def _config(**groups) -> Config:
    return Config(run=RunConfig(name="r"), env=EnvConfig(id="CartPole-v1"), **groups)


_ON_GPU = {"actors": {"inference": "predictor"}, "predictor": {"runtime": "torch"}}


@pytest.mark.parametrize(
    ("device", "groups", "wanted"),
    [
        ("cpu", {}, False),
        ("cpu", _ON_GPU, False),
        ("cpu", {"trainer": {"share_weights": "host"}}, True),
        ("cuda", _ON_GPU, True),
        ("cuda", {"trainer": {"share_weights": "host"}}, True),
        ("cuda", {}, False),
        ("cuda", {**_ON_GPU, "trainer": {"share_weights": "off"}}, False),
        ("cuda", {**_ON_GPU, "predictor": {"runtime": "onnx"}}, False),
        ("cuda", {**_ON_GPU, "predictor": {"runtime": "torch", "device": "cpu"}}, False),
        ("cuda", {**_ON_GPU, "compressor": {"chain": ["onnx"]}}, False),
    ],
)
def test_a_buffer_is_made_only_where_a_role_would_read_it(device, groups, wanted) -> None:
    allocate = allocator_for(_config(**groups), torch.device(device))
    assert (allocate is not None) == wanted


def _no_memory(floats: int):
    raise SharingError(f"shared memory of {floats} numbers: No space left on device")


@pytest.mark.parametrize(
    ("make", "monitor", "reason"),
    [
        (HostMemory.create, "tcp://127.0.0.1:5555", "the roles use tcp"),
        (HostMemory.create, "ipc:///nowhere/at/all/m.sock", "cannot bind /nowhere/at/all/"),
        (HostMemory.create, f"ipc:///tmp/{'x' * 90}/m.sock", "the socket path"),
        (_no_memory, "ipc:///tmp/m.sock", "No space left on device"),
    ],
)
def test_a_buffer_that_cannot_be_is_told_and_leaves_nothing_open(
    tools, caplog, make, monitor, reason
) -> None:
    gc.collect()  # left open by earlier tests
    before = len(os.listdir("/proc/self/fd"))
    with caplog.at_level("INFO"):
        weights = {name: (PublishedWeights(), tools.flat) for name in ("red", "blue")}
        assert share_weights(weights, make, monitor) is None
    assert "event=weights_not_shared" in caplog.text and reason in caplog.text
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("share", "reads"), [("auto", False), ("off", False), ("host", True)])
def test_on_the_cpu_only_host_memory_is_read(sharing, share, reads) -> None:
    shared = shared_weights_of(share, sharing.architecture, sharing.runtime, "onnx")
    assert (shared is not None) == reads
    if shared is not None:
        shared.follow(sharing.known.peers[0])
        assert shared.newer_than(PolicyVersion()) is None and shared.open


def test_a_learner_posts_its_weights_in_the_order_of_the_buffer(sharing, tools) -> None:
    learner = Learner(
        tools.flat,
        objective=make_objective(_config().loss, _config().correctors),
        optimiser=_config().optimiser,
        device=torch.device("cpu"),
        seed=11,
    )
    sharing.published.publish(PolicyVersion(0, 1), learner.published)
    sharing.poll()
    assert sharing.acts_on(11)
