"""The compressor's steps: what it publishes when links work, fail or lack observations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aclearn.config import CompressorConfig, Config, EnvConfig, RunConfig
from aclearn.policies import PolicyVersion
from aclearn.wire import (
    ArtifactReply,
    ArtifactRequest,
    NoNewerWeights,
    ObservationsRequest,
    Peer,
    RecentObservations,
    Weights,
    WeightsRequest,
    decode,
    encode,
)
from compress import ArtifactPolicy, CompressorChain, Link, RefusedArtifact, parse_chain
from services.artifacts import artifact_of, reply_of
from services.compressor import Cadence, Compressor, refresh, serve_artifacts
from services.policies import make_chain
from services.policy_client import PolicyClient
from services.policy_sources import ArtifactSource
from services.role import PeerLink
from services.trainer import compressed_share
from services.trainer_line import TrainerLine


class Moody(Link):
    """Works, or raises what it is told to, or hands on what `spoil` makes of the tensors."""

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
    return rng.normal(size=(count, *architecture.observation_shape)).astype(np.float32)


def float64_logits(architecture, tensors, observations):
    """The mlp by hand."""
    x = observations.astype(np.float64)
    for i in range(len(architecture.hidden)):
        x = np.tanh(x @ tensors[f"hidden.{i}.weight"].T + tensors[f"hidden.{i}.bias"])
    return x @ tensors["policy.weight"].T + tensors["policy.bias"]


def make(tools, items, **changes) -> Compressor:
    config = CompressorConfig(chain=items, **changes)
    chain = parse_chain(items, fidelity_observations=config.fidelity_observations)
    return Compressor(chain, tools.flat, config, seed=1, clock=tools.Clock())


def make_moody(tools, **changes) -> tuple[Moody, Compressor]:
    link, config = Moody(), CompressorConfig(chain=["onnx"], **changes)
    chain = CompressorChain(fidelity_observations=config.fidelity_observations).add(link)
    return link, Compressor(chain, tools.flat, config, seed=1, clock=tools.Clock())


def acting(artifact, architecture) -> ArtifactPolicy:
    runtime = ArtifactPolicy(architecture)
    runtime.swap(artifact)
    return runtime


def test_before_there_are_observations_the_uncompressed_policy_acts(tools) -> None:
    compressor = make(tools, ["int8", "onnx"])
    tensors = some_tensors(tools.flat, 1)
    compressor.compress(PolicyVersion(0, 1), tensors)
    plain = compressor.artifact
    assert (plain.chain, plain.at) == ("fuse>onnx", PolicyVersion(0, 1))
    assert (compressor.made, compressor.plain, compressor.errors) == (0, 1, {})
    observations = some_observations(tools.flat, 5)
    expected = float64_logits(tools.flat, tensors, observations)
    np.testing.assert_allclose(
        acting(plain, tools.flat).logits(observations), expected, rtol=1e-5, atol=1e-5
    )
    compressor.observe(observations)
    compressor.compress(PolicyVersion(0, 2), some_tensors(tools.flat, 2))
    assert compressor.artifact.chain.startswith("int8") and compressor.made == 1
    assert compressor.artifact.at == PolicyVersion(0, 2)


def test_the_newest_observations_are_kept(tools) -> None:
    compressor = make(tools, ["onnx"], observations=6)
    for k in range(3):
        compressor.observe(np.full((4, 3), k, np.float32))
    kept = compressor._context.observations
    assert kept[:, 0].tolist() == [1, 1, 2, 2, 2, 2]


def test_a_failing_link_is_counted_and_the_last_artifact_stays(tools) -> None:
    link, compressor = make_moody(tools)
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    good = compressor.artifact
    link.error = ZeroDivisionError("a bug in a link")
    for version in range(2, 6):
        compressor.compress(PolicyVersion(0, version), some_tensors(tools.flat, version))
        assert compressor.artifact is good
    assert compressor.errors == {"ZeroDivisionError": 4}
    # a fifth failure: better the uncompressed policy than one that nothing can be learned from
    compressor.compress(PolicyVersion(0, 6), some_tensors(tools.flat, 6))
    assert (compressor.artifact.at, compressor.artifact.chain) == (PolicyVersion(0, 6), "fuse>onnx")
    link.error = None
    compressor.compress(PolicyVersion(0, 7), some_tensors(tools.flat, 7))
    assert (compressor.artifact.at, compressor.artifact.chain) == (PolicyVersion(0, 7), "moody")
    assert compressor.counters()["errors"] == 5


def test_a_link_that_fails_at_the_very_first_version_leaves_actors_a_policy(tools) -> None:
    link, compressor = make_moody(tools)
    link.error = KeyError("never worked")
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    assert (compressor.artifact.chain, compressor.errors) == ("fuse>onnx", {"KeyError": 1})


def doubled(tensors):
    return {name: tensor.astype(np.float64) for name, tensor in tensors.items()}


def beheaded(tensors):
    return {name: tensor for name, tensor in tensors.items() if name != "policy.weight"}


def spoilt(tensors):
    return {**tensors, "policy.bias": tensors["policy.bias"] * np.float32("nan")}


@pytest.mark.parametrize("spoil", [doubled, beheaded, spoilt])
def test_a_link_whose_tensors_are_refused_is_a_failing_link(tools, spoil) -> None:
    link, compressor = make_moody(tools)
    link.spoil = spoil
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    assert (compressor.artifact.at, compressor.artifact.chain) == (PolicyVersion(0, 1), "fuse>onnx")
    link.spoil = lambda tensors: tensors
    compressor.compress(PolicyVersion(0, 2), some_tensors(tools.flat, 2))
    good = compressor.artifact
    assert good.chain == "moody"
    link.spoil = spoil
    for version in range(3, 7):
        compressor.compress(PolicyVersion(0, version), some_tensors(tools.flat, version))
        assert compressor.artifact is good
    compressor.compress(PolicyVersion(0, 7), some_tensors(tools.flat, 7))
    assert (compressor.artifact.at, compressor.artifact.chain) == (PolicyVersion(0, 7), "fuse>onnx")
    assert compressor.errors == {"RefusedTensors": 6}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_change_nothing(tools, bad) -> None:
    compressor = make(tools, ["onnx"])
    tensors = some_tensors(tools.flat, 1)
    tensors["policy.weight"][0, 0] = bad
    compressor.compress(PolicyVersion(0, 1), tensors)
    assert (compressor.artifact, compressor.errors) == (None, {"RefusedTensors": 1})
    compressor.compress(PolicyVersion(0, 2), some_tensors(tools.flat, 2))
    kept = compressor.artifact
    for _ in range(6):  # no number of them says anything of the chain
        compressor.compress(PolicyVersion(0, 3), tensors)
        assert compressor.artifact is kept
    assert compressor.known == PolicyVersion(0, 3)


def test_an_artifact_too_far_from_its_policy_is_not_published(tools) -> None:
    compressor = make(tools, ["int8", "onnx"], max_kl=1e-12)
    compressor.observe(some_observations(tools.flat, 40))
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    assert (compressor.artifact.chain, compressor.plain) == ("fuse>onnx", 1)
    assert compressor.errors == {"unfaithful": 1}


def flipped(tensors):
    """The opposite policy: all logits times −1."""
    return {n: -t if n.startswith("policy.") else t for n, t in tensors.items()}


def test_every_version_is_held_to_the_bound(tools) -> None:
    config = Config(
        run=RunConfig(name="r"),
        env=EnvConfig(id="CartPole-v1"),
        compressor=CompressorConfig(chain=["onnx"], max_kl=0.01, fidelity_every=10),
    )
    link = Moody()
    compressor = Compressor(
        make_chain(config, tools.flat).add(link),
        tools.flat,
        config.compressor,
        seed=1,
        clock=tools.Clock(),
    )
    compressor.observe(some_observations(tools.flat, 40))
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    assert compressor.artifact.chain == "onnx>moody"
    link.spoil = flipped
    tensors = some_tensors(tools.flat, 2)
    compressor.compress(PolicyVersion(0, 2), tensors)
    assert (compressor.artifact.at, compressor.artifact.chain) == (PolicyVersion(0, 2), "fuse>onnx")
    assert compressor.errors == {"unfaithful": 1}
    # the gauges say how far what was not published is
    logits = float64_logits(tools.flat, tensors, compressor._context.observations)
    log_pi, log_mu = (z - np.log(np.exp(z).sum(1, keepdims=True)) for z in (logits, -logits))
    kl = (np.exp(log_pi) * (log_pi - log_mu)).sum(1)
    gauges = compressor.gauges()
    assert gauges["compressed"] == 0.0 and kl.min() < gauges["kl_mean"] < kl.max()


def enormous(tensors):
    """Finite weights whose logits are not: each is the sum of five times 3e38."""
    large = {"hidden.0.bias": 9.0, "policy.weight": 3e38, "policy.bias": 3e38}
    return {n: np.full_like(t, large[n]) if n in large else t for n, t in tensors.items()}


@pytest.mark.parametrize("observed", [0, 40])
def test_a_link_whose_logits_are_not_finite_is_a_failing_link(roles, tools, observed) -> None:
    link, compressor = make_moody(tools)
    link.spoil = enormous
    if observed:
        compressor.observe(some_observations(tools.flat, observed))
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    assert compressor.errors == {"RefusedTensors": 1}
    assert compressor.artifact.chain == "fuse>onnx"
    pulling = Pulling(roles, tools)
    pulling.pull(compressor)
    assert pulling.client.at == PolicyVersion(0, 1)


def test_a_policy_whose_own_logits_are_not_finite_is_not_published_at_all(tools) -> None:
    _, compressor = make_moody(tools)
    compressor.observe(some_observations(tools.flat, 40))
    compressor.compress(PolicyVersion(0, 1), enormous(some_tensors(tools.flat, 1)))
    assert compressor.artifact is None and compressor.known == PolicyVersion(0, 1)
    assert compressor.newer_than(PolicyVersion(), plain=True) is None
    compressor.compress(PolicyVersion(0, 2), some_tensors(tools.flat, 1))
    assert (compressor.artifact.chain, compressor.artifact.at) == ("moody", PolicyVersion(0, 2))


def test_what_links_say_of_themselves_stops_nothing(tools, caplog) -> None:
    link, compressor = make_moody(tools)
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    link.gauges = lambda memory: {"loss": 0.5, "kl": float("nan"), "norm": np.float32("inf")}
    gauges = compressor.gauges()
    assert gauges["moody_loss"] == 0.5 and not {"moody_kl", "moody_norm"} & set(gauges)
    for said in (
        lambda memory: {"steps": memory["no such thing"]},
        lambda memory: None,
        lambda memory: {"loss": "much"},
    ):
        link.gauges = said
        assert compressor.gauges()["artifact_version"] == 1
    assert compressor.errors == {"gauges": 1}
    assert sum("event=no_gauges" in record.msg for record in caplog.records) == 1


def test_a_new_student_acts_once_it_is_near_its_policy(tools) -> None:
    student = {"student": "mlp", "hidden": [16], "learning_rate": 0.01}
    distill = {"distill": {**student, "first_steps": 1, "steps": 40}}
    compressor = make(tools, [distill, "onnx"], max_kl=0.1)
    compressor.observe(some_observations(tools.flat, 256))
    tensors = some_tensors(tools.flat, 1)
    tensors["policy.weight"] *= 10  # a policy that has learned to prefer actions
    chains, distances = [], []
    for version in range(1, 31):
        compressor.compress(PolicyVersion(0, version), tensors)
        chains.append(compressor.artifact.chain)
        distances.append(compressor.gauges()["kl_mean"])
    assert chains[0] == "fuse>onnx" and distances[0] > 0.1
    assert chains[-1].startswith("distill=mlp") and distances[-1] <= 0.1
    for chain, distance in zip(chains, distances, strict=True):
        assert (chain == "fuse>onnx") == (distance > 0.1)


@pytest.mark.parametrize("observed", [0, 40])
def test_what_was_compared_with_nothing_is_within_no_bound_and_has_no_gauges(
    tools, observed
) -> None:
    for bound, chain in ((0.5, "fuse>onnx"), (None, "moody")):
        _, compressor = make_moody(tools, max_kl=bound, fidelity_observations=0)
        if observed:
            compressor.observe(some_observations(tools.flat, observed))
        compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
        assert (compressor.artifact.chain, compressor.errors["unfaithful"]) == (chain, 0)
        assert not {"kl_mean", "kl_max", "agreement"} & set(compressor.gauges())


def test_links_that_have_no_effect_are_told_once(tools, caplog) -> None:
    make(tools, [{"prune": 0.5}, {"distill": "mlp"}, "onnx"])
    make(tools, [{"prune": 0.5}, "distill", "onnx"])
    [record] = caplog.records
    assert "event=links_without_effect" in record.message and "prune=0.5" in record.message


def test_gauges_tell_of_the_newest_artifact(tools) -> None:
    compressor = make(tools, ["int8", "onnx"])
    assert compressor.gauges() == {}
    compressor.observe(some_observations(tools.flat, 40))
    compressor.compress(PolicyVersion(0, 4), some_tensors(tools.flat, 1))
    gauges = compressor.gauges()
    assert gauges["artifact_version"] == 4 and gauges["compressed"] == 1
    assert 0 < gauges["kl_mean"] <= gauges["kl_max"] < 0.1
    assert gauges["artifact_bytes"] == compressor.artifact.bytes > 0


def test_artifacts_pass_over_the_wire_unchanged(tools) -> None:
    compressor = make(tools, ["int8", "onnx"])
    compressor.observe(some_observations(tools.flat, 40))
    compressor.compress(PolicyVersion(2, 4), some_tensors(tools.flat, 1))
    sent = compressor.artifact
    frames = [bytes(part) for part in encode(reply_of(sent), run="r", sender="s", sequence=1)]
    got = artifact_of(decode(frames).message)
    assert got.computed_digest() == got.digest == sent.digest
    assert (got.at, got.graph, got.fidelity) == (sent.at, sent.graph, sent.fidelity)
    observations = some_observations(tools.flat, 6, seed=5)
    np.testing.assert_allclose(
        acting(got, tools.flat).logits(observations),
        acting(sent, tools.flat).logits(observations),
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"graph": "{}"},
        {"graph": "not JSON"},
        {"graph": "[1, 2]"},
        {"fidelity": {"kl_mean": 0.0}},
        {"latency_ms": {"eight": 0.1}},
    ],
)
def test_a_message_that_describes_no_artifact_is_refused(tools, changes) -> None:
    compressor = make(tools, ["onnx"])
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    reply = replace(reply_of(compressor.artifact), **changes)
    with pytest.raises(RefusedArtifact, match="describes none"):
        artifact_of(reply)


@pytest.mark.parametrize(
    ("cpu_s", "expected"), [(0.01, 100.2), (0.05, 100.2), (0.5, 102.0), (0.0, 100.2)]
)
def test_the_next_compression_waits_for_its_share_of_a_core(cpu_s, expected) -> None:
    cadence = Cadence(every_s=0.2, cpu_share=0.25, now=99.0)
    assert cadence.next_start == 99.0
    cadence.done(100.0, cpu_s)
    assert cadence.next_start == pytest.approx(expected)


def test_the_share_of_compressed_steps_is_that_of_changed_policies(tools) -> None:
    valid = np.array([[True, False], [True, True], [False, True]])  # four of six
    chains = [("int8>onnx", 6), ("none", 6), ("fuse>onnx", 6), ("prune=0.5>torchscript", 4)]
    unrolls = [
        tools.make_unroll(chain=chain, **({} if steps == 6 else {"valid": valid}))
        for chain, steps in chains
    ]
    assert compressed_share(unrolls) == pytest.approx(10 / 22)
    assert compressed_share([]) == 0.0


class Pulling:
    """An actor's policy client, and the compressor that it asks over a real socket."""

    def __init__(self, roles, tools) -> None:
        self.tools, self.clock, self.known = tools, tools.Clock(), tools.KnownPeers()
        context = roles("compressor-0")
        self.server, endpoint = context.serve((ArtifactRequest,))
        peer = Peer("compressor", "compressor-0", context.incarnation, {"artifacts": endpoint})
        self.known.learn(peer)
        self.runtime = ArtifactPolicy(tools.flat)
        self.link = PeerLink(roles("actor-0"), "compressor", "artifacts")
        self.client = PolicyClient(self.link, ArtifactSource(self.runtime), clock=self.clock)

    def poll(self) -> None:
        self.clock.now += 0.02
        self.client.poll(self.known)

    def pull(self, compressor: Compressor) -> None:
        """Until the client has had an answer."""
        swaps, refused = self.client.swaps, self.client.refused

        def answered() -> bool:
            self.poll()
            serve_artifacts(self.server, compressor, 0.01)
            return (self.client.swaps, self.client.refused) != (swaps, refused)

        self.tools.wait_until(answered, "the actor has taken or refused an artifact")


def test_actors_pull_artifacts_and_keep_the_old_one_when_one_is_damaged(roles, tools) -> None:
    pulling, compressor = Pulling(roles, tools), make(tools, ["int8", "onnx"])
    observations = some_observations(tools.flat, 40)
    compressor.observe(observations)
    compressor.compress(PolicyVersion(2, 1), some_tensors(tools.flat, 1))
    pulling.pull(compressor)
    assert pulling.client.at == PolicyVersion(2, 1)
    assert pulling.client.chain == compressor.artifact.chain != "none"
    before = pulling.runtime.logits(observations)

    compressor.compress(PolicyVersion(2, 2), some_tensors(tools.flat, 2))
    whole = compressor.artifact
    damaged = {name: tensor.copy() for name, tensor in whole.tensors.items()}
    damaged["hidden.0.weight"].reshape(-1).view(np.uint8)[3] ^= 1
    compressor.artifact = replace(whole, tensors=damaged)
    pulling.pull(compressor)
    assert (pulling.client.at, pulling.client.refused) == (PolicyVersion(2, 1), 1)
    np.testing.assert_allclose(pulling.runtime.logits(observations), before, rtol=1e-5, atol=1e-6)

    # the calibrated ranges still hold for weights that have moved a little
    old, step = some_tensors(tools.flat, 1), some_tensors(tools.flat, 3)
    tensors = {name: old[name] + np.float32(0.05) * step[name] for name in old}
    compressor.compress(PolicyVersion(2, 3), tensors)
    pulling.pull(compressor)
    assert pulling.client.at == PolicyVersion(2, 3)
    expected = float64_logits(tools.flat, tensors, observations)
    np.testing.assert_allclose(pulling.runtime.logits(observations), expected, atol=0.05)
    # an artifact of an older epoch or version changes nothing
    compressor.artifact = whole
    request = ArtifactRequest(2, 3)
    assert compressor.newer_than(PolicyVersion(request.epoch, request.version)) is None


def test_who_refuses_the_last_artifact_acts_on_the_uncompressed_policy(roles, tools) -> None:
    pulling, compressor = Pulling(roles, tools), make(tools, ["int8", "onnx"])
    observations, tensors = some_observations(tools.flat, 40), some_tensors(tools.flat, 1)
    compressor.observe(observations)
    compressor.compress(PolicyVersion(0, 1), tensors)
    # as on a processor that computes int8 otherwise: sealed, but its probe fails
    other = replace(compressor.artifact, probe_logits=compressor.artifact.probe_logits + 1)
    compressor.artifact = replace(other, digest=other.computed_digest())
    pulling.pull(compressor)
    assert (pulling.client.at, pulling.client.refused) == (PolicyVersion(), 1)
    pulling.pull(compressor)
    assert (pulling.client.at, pulling.client.chain) == (PolicyVersion(0, 1), "fuse>onnx")
    np.testing.assert_allclose(
        pulling.runtime.logits(observations),
        float64_logits(tools.flat, tensors, observations),
        rtol=1e-5,
        atol=1e-5,
    )
    # the next version is tried as the chain makes it
    compressor.compress(PolicyVersion(0, 2), tensors)
    pulling.pull(compressor)
    assert (pulling.client.at, pulling.client.chain) == (
        PolicyVersion(0, 2),
        compressor.artifact.chain,
    )
    assert pulling.client.chain.startswith("int8")


def test_an_uncompressed_policy_that_is_refused_is_asked_for_once_a_second(roles, tools) -> None:
    pulling, compressor = Pulling(roles, tools), make(tools, ["onnx"])
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    damaged = replace(compressor.artifact, digest="0" * 32)
    compressor.newer_than = lambda known, plain: damaged if damaged.at > known else None
    begun = pulling.clock.now
    for _ in range(5):
        pulling.pull(compressor)
    assert pulling.clock.now - begun > 4.0
    assert (pulling.client.refused, pulling.client.swaps) == (5, 0)
    assert pulling.client.at == PolicyVersion()


def test_who_has_the_newest_artifact_gets_nothing(roles, tools) -> None:
    compressor = make(tools, ["onnx"])
    server, endpoint = roles("compressor-0").serve((ArtifactRequest,))
    client = roles("actor-0").connect(endpoint)
    for known, expected in (((-1, -1), ArtifactReply), ((0, 1), NoNewerWeights)):
        if compressor.artifact is None:
            compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
        assert client.send(ArtifactRequest(*known), timeout_s=tools.deadline_s)
        tools.wait_until(lambda: server.socket.poll(50), "the request is there")
        assert serve_artifacts(server, compressor, 0.0) == (expected is ArtifactReply)
        envelope = client.receive(tools.deadline_s)
        assert isinstance(envelope.message, expected)


def test_the_line_to_the_trainer_asks_for_weights_and_now_and_then_for_observations(
    roles, tools
) -> None:
    clock, known = tools.Clock(), tools.KnownPeers()
    trainer = roles("trainer-0")
    server, endpoint = trainer.serve((WeightsRequest, ObservationsRequest))
    known.learn(Peer("trainer", "trainer-0", trainer.incarnation, {"weights": endpoint}))
    line = TrainerLine(
        PeerLink(roles("compressor-0"), "trainer", "weights"),
        observations=7,
        observations_every_s=2.0,
        clock=clock,
    )
    got: list = []
    wanted = False

    def poll() -> None:
        got.append(line.poll(known, PolicyVersion(0, 3), wanted=wanted))

    identity, envelope = tools.next_message(server, poll)
    assert envelope.message == ObservationsRequest(7)
    server.send(identity, RecentObservations(np.ones((2, 3), np.float32)))
    tools.wait_until(lambda: (poll(), got[-1][1] is not None)[1], "observations have come")
    assert got[-1][1].shape == (2, 3)
    assert tools.nothing_comes(server, poll)
    wanted = True
    clock.now += 1.0
    identity, envelope = tools.next_message(server, poll)
    assert envelope.message == WeightsRequest(0, 3)
    server.send(identity, Weights(0, 4, {"a": np.ones(2, np.float32)}))
    tools.wait_until(lambda: (poll(), got[-1][0] is not None)[1], "weights have come")
    wanted = False
    clock.now += 1.1
    assert tools.next_message(server, poll)[1].message == ObservationsRequest(7)


def test_a_failing_chain_ends_in_the_uncompressed_policy_though_no_newer_weights_come(
    roles, tools
) -> None:
    clock, known = tools.Clock(), tools.KnownPeers()
    trainer = roles("trainer-0")
    server, endpoint = trainer.serve((WeightsRequest, ObservationsRequest))
    known.learn(Peer("trainer", "trainer-0", trainer.incarnation, {"weights": endpoint}))
    peer = PeerLink(roles("compressor-0"), "trainer", "weights")
    line = TrainerLine(peer, observations=7, observations_every_s=1e9, clock=clock)
    cadence = Cadence(every_s=0.2, cpu_share=0.5, now=clock.now)
    link, compressor = make_moody(tools)
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    link.error = ZeroDivisionError("in every version from now on")
    last, starts = Weights(0, 2, some_tensors(tools.flat, 2)), []

    def step() -> None:
        clock.now += 0.05
        calls = link.calls
        refresh(compressor, line, cadence, known, clock=clock, cpu_clock=lambda: 0.0)
        starts.extend([clock.now] * (link.calls - calls))
        for identity, envelope in server.receive(0.01):
            asked = envelope.message
            if isinstance(asked, WeightsRequest):
                newer = (asked.epoch, asked.version) < (0, 2)
                server.send(identity, last if newer else NoNewerWeights(0, 2))

    def acts() -> bool:
        step()
        return compressor.artifact.at == PolicyVersion(0, 2)

    tools.wait_until(acts, "the last version acts")
    assert (compressor.artifact.chain, compressor.errors["ZeroDivisionError"]) == ("fuse>onnx", 5)
    assert np.diff(starts).min() > 0.2 - 1e-9 and len(starts) == 5
    for _ in range(10):  # and nothing more is to be made of it
        step()
    assert len(starts) == 5 and compressor.known == PolicyVersion(0, 2)
