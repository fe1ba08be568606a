"""Compressors of small policies, a scripted link, and an actor's client."""

from __future__ import annotations

import numpy as np

from aclearn.config import CompressorConfig
from aclearn.wire import (
    Peer,
)
from compress import ArtifactRuntime, CompressorChain, Link, parse_chain
from services.compressor.core import Compressor
from services.compressor.server import ArtifactServer
from services.policy.client import PolicyClient
from services.policy.sources import artifact_source
from services.role.request_client import PeerLink
from tests.support.acting import Acting
from tests.support.architectures import parts_of


class Moody(Link):
    """Passes tensors on through `spoil`, or raises its error."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.spoil = lambda tensors: tensors
        self.calls = 0

    @property
    def id(self) -> str:
        return "moody"

    def plan(self, graph):
        return graph

    def compress(self, policy, context):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return policy.become(policy.graph, self.spoil(dict(policy.tensors)))


def some_tensors(architecture, seed: int):
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in architecture.tensor_shapes().items()
    }


def some_observations(architecture, count: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, *architecture.observation["observation"].shape)).astype(
        np.float32
    )


def float64_parameters(architecture, tensors, observations):
    """The mlp's output, computed by hand in float64."""
    x = observations.astype(np.float64)
    for i in range(len(parts_of(architecture).hidden)):
        x = np.tanh(x @ tensors[f"hidden.{i}.weight"].T + tensors[f"hidden.{i}.bias"])
    return x @ tensors["policy.weight"].T + tensors["policy.bias"]


def make(tools, items, **changes) -> Compressor:
    config = CompressorConfig(chain=items, **changes)
    chain = parse_chain(items, fidelity_observations=config.fidelity_observations)
    return Compressor([chain], tools.flat, config, seed=1, clock=tools.Clock())


def make_moody(tools, **changes) -> tuple[Moody, Compressor]:
    link, config = Moody(), CompressorConfig(chain=["onnx"], **changes)
    chain = CompressorChain(fidelity_observations=config.fidelity_observations).add(link)
    return link, Compressor([chain], tools.flat, config, seed=1, clock=tools.Clock())


def acting(artifact, architecture) -> Acting:
    runtime = Acting(ArtifactRuntime(architecture))
    runtime.load(artifact)
    return runtime


class Pulling:
    """An actor's policy client, and its compressor behind a real socket."""

    def __init__(self, roles, tools) -> None:
        self.tools, self.clock, self.known = tools, tools.Clock(), tools.KnownPeers()
        context = roles("compressor-0")
        self.server, endpoint = context.serve("artifacts")
        peer = Peer("compressor", "compressor-0", context.incarnation, {"artifacts": endpoint})
        self.known.learn(peer)
        self.runtime = Acting(ArtifactRuntime(tools.flat))
        self.link = PeerLink(roles("actor-0"), "artifacts")
        self.client = PolicyClient(self.link, artifact_source(self.runtime), clock=self.clock)

    def poll(self) -> None:
        self.clock.now += 0.02
        self.client.poll(self.known)

    def pull(self, compressor: Compressor) -> None:
        """Run until the client has an answer."""
        swaps, refused = self.client.swaps, self.client.refused
        artifacts = ArtifactServer(self.server, {"default": compressor}, self.clock)

        def answered() -> bool:
            self.poll()
            artifacts.serve(0.01)
            return (self.client.swaps, self.client.refused) != (swaps, refused)

        self.tools.wait_until(answered, "the actor has taken or refused an artifact")
