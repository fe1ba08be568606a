"""The compressor's steps: its publications when links work, fail or lack observations."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from aclearn.config import CompressorConfig, Config, EnvConfig, RunConfig
from aclearn.types import PolicyId, PolicyVersion
from aclearn.wire import Heartbeat, decode, encode
from compress import ONNX, CompressorChain, Context, Policy, RefusedArtifact
from services.compressor.core import Compressor
from services.compressor.server import reply_of
from services.policy.factory import make_ladder
from services.policy.sources import artifact_of
from services.trainer.gauges import ChainSteps, compressed_share
from tests.support.compressors import (
    Moody,
    Pulling,
    acting,
    float64_parameters,
    make,
    make_moody,
    some_observations,
    some_tensors,
)
from tests.support.contexts import seen


def test_before_there_are_observations_the_uncompressed_policy_acts(tools) -> None:
    compressor = make(tools, ["int8", "onnx"])
    tensors = some_tensors(tools.flat, 1)
    compressor.compress(PolicyVersion(0, 1), tensors)
    uncompressed = compressor.artifact
    assert (uncompressed.chain, uncompressed.at) == ("fuse>onnx", PolicyVersion(0, 1))
    assert (compressor.made, compressor.uncompressed, compressor.errors) == (0, 1, {})
    observations = some_observations(tools.flat, 5)
    expected = float64_parameters(tools.flat, tensors, observations)
    np.testing.assert_allclose(
        acting(uncompressed, tools.flat).parameters(observations), expected, rtol=1e-5, atol=1e-5
    )
    compressor.observe(seen(observations))
    compressor.compress(PolicyVersion(0, 2), some_tensors(tools.flat, 2))
    assert compressor.artifact.chain.startswith("int8") and compressor.made == 1
    assert compressor.artifact.at == PolicyVersion(0, 2)


def test_the_newest_observations_are_kept_for_links_or_for_comparisons(tools) -> None:
    compressor = make(tools, ["onnx"], observations=6, fidelity_observations=2)
    numbered = np.repeat(np.arange(12, dtype=np.float32)[:, None], 3, axis=1)
    # six for links to two for comparisons: each fourth is held out, in any division into batches
    for part in (numbered[:5], numbered[5:6], numbered[6:]):
        compressor.observe(seen(part))
    context = compressor.ladder.rung.context
    assert context.visited.observations["observation"][:, 0].tolist() == [4, 5, 6, 8, 9, 10]
    assert context.held_out.observations["observation"][:, 0].tolist() == [7, 11]


def test_sequences_are_kept_whole_for_links_or_for_comparisons(tools) -> None:
    compressor = make(tools, ["onnx"], observations=10, fidelity_observations=5)
    numbered = np.repeat(np.arange(24, dtype=np.float32)[:, None], 3, axis=1)
    for part in (numbered[:12], numbered[12:]):
        compressor.observe(replace(seen(part), length=4))
    context = compressor.ladder.rung.context
    # of six sequences each third is held out; three have ten observations, two have five
    assert context.visited.observations["observation"][::4, 0].tolist() == [4, 12, 16]
    assert context.held_out.observations["observation"][::4, 0].tolist() == [8, 20]
    assert context.visited.length == context.held_out.length == 4
    drawn = context.sample("link", 8, np.random.default_rng(0))
    assert drawn.sequences == 2


def test_only_valid_observations_of_sequences_count(tools) -> None:
    compressor = make(tools, ["onnx"], observations=8, fidelity_observations=0)
    valid = np.ones((6, 4), np.bool_)
    valid[4:, 1:] = False  # one of each of the newest two
    numbered = np.repeat(np.arange(24, dtype=np.float32)[:, None], 3, axis=1)
    compressor.observe(replace(seen(numbered), length=4, valid=valid.ravel()))
    visited = compressor.ladder.rung.context.visited
    assert visited.observations["observation"][::4, 0].tolist() == [8, 12, 16, 20]
    drawn = visited.take(visited.needed(6, np.array([3, 0, 1, 2])))  # 1 + 4 + 4
    assert drawn.observations["observation"][::4, 0].tolist() == [20, 8, 12]


def test_where_nothing_is_compared_all_observations_are_for_links(tools) -> None:
    compressor = make(tools, ["onnx"], observations=6, fidelity_observations=0)
    for _ in range(2):
        compressor.observe(seen(some_observations(tools.flat, 4)))
    context = compressor.ladder.rung.context
    assert (len(context.visited), len(context.held_out)) == (6, 0)


def test_a_link_that_always_fails_is_told_of_with_one_traceback_and_a_line_each(
    tools, caplog
) -> None:
    link, compressor = make_moody(tools)
    errors = [ZeroDivisionError(f"in version {version}") for version in range(1, 8)]
    for version, error in enumerate([*errors, KeyError("another bug"), errors[0]], start=1):
        link.error = error
        compressor.compress(PolicyVersion(0, version), some_tensors(tools.flat, 1))
    tracebacks = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert tracebacks == [ZeroDivisionError, KeyError]
    lines = [record.message for record in caplog.records if not record.exc_info]
    assert len(lines) == 9 and not any("\n" in line for line in lines)
    assert lines[6] == (
        "event=not_compressed failures=7 error=ZeroDivisionError reason='in version 7'"
    )


def test_each_link_that_fails_has_a_traceback_of_its_own(tools, caplog) -> None:
    class Gloomy(Moody):
        def compress(self, policy, context):
            return super().compress(policy, context)

    links, config = (Moody(), Gloomy()), CompressorConfig(chain=["onnx"])
    chain = CompressorChain(fidelity_observations=0).add(links[0]).add(links[1])
    compressor = Compressor([chain], tools.flat, config, seed=1, clock=tools.Clock())
    for version, failing in enumerate([0, 1, 0, 1], start=1):
        links[failing].error, links[1 - failing].error = ValueError("the same"), None
        compressor.compress(PolicyVersion(0, version), some_tensors(tools.flat, 1))
    assert sum(record.exc_info is not None for record in caplog.records) == 2


def doubled(tensors):
    return {name: tensor.astype(np.float64) for name, tensor in tensors.items()}


def beheaded(tensors):
    return {name: tensor for name, tensor in tensors.items() if name != "policy.weight"}


def spoilt(tensors):
    return {**tensors, "policy.bias": tensors["policy.bias"] * np.float32("nan")}


def failing(tensors):
    raise ZeroDivisionError("a bug in a link")


@pytest.mark.parametrize("spoil", [doubled, beheaded, spoilt, failing])
def test_a_link_that_fails_or_whose_tensors_are_refused_is_counted_and_the_last_artifact_stays(
    tools, spoil
) -> None:
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
    # a fifth failure: the uncompressed policy, since unrolls of the old one are too old to learn
    compressor.compress(PolicyVersion(0, 7), some_tensors(tools.flat, 7))
    assert (compressor.artifact.at, compressor.artifact.chain) == (PolicyVersion(0, 7), "fuse>onnx")
    name = "ZeroDivisionError" if spoil is failing else "RefusedTensors"
    assert compressor.errors == {name: 6} and compressor.counters()["errors"] == 6
    link.spoil = lambda tensors: tensors
    compressor.compress(PolicyVersion(0, 8), some_tensors(tools.flat, 8))
    assert (compressor.artifact.at, compressor.artifact.chain) == (PolicyVersion(0, 8), "moody")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_change_nothing(tools, bad) -> None:
    compressor = make(tools, ["onnx"])
    tensors = some_tensors(tools.flat, 1)
    tensors["policy.weight"][0, 0] = bad
    compressor.compress(PolicyVersion(0, 1), tensors)
    assert (compressor.artifact, compressor.errors) == (None, {"RefusedTensors": 1})
    compressor.compress(PolicyVersion(0, 2), some_tensors(tools.flat, 2))
    kept = compressor.artifact
    for _ in range(6):  # their number has no effect on the chain
        compressor.compress(PolicyVersion(0, 3), tensors)
        assert compressor.artifact is kept
    assert compressor.known == PolicyVersion(0, 3)


def test_an_artifact_too_far_from_its_policy_is_not_published(tools) -> None:
    compressor = make(tools, ["int8", "onnx"], max_kl=1e-12)
    compressor.observe(seen(some_observations(tools.flat, 40)))
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    assert (compressor.artifact.chain, compressor.uncompressed) == ("fuse>onnx", 1)
    assert compressor.errors == {"unfaithful": 1}


def flipped(tensors):
    """The opposite policy: all logits times −1."""
    return {n: -t if n.startswith("policy.") else t for n, t in tensors.items()}


@pytest.mark.parametrize("every", [1, 10])
def test_every_version_is_held_to_the_bound(tools, every) -> None:
    config = Config(
        run=RunConfig(name="r"),
        env=EnvConfig(id="CartPole-v1"),
        compressor=CompressorConfig(
            chain=["onnx"],
            max_kl=0.01,
            fidelity_every=every,
            observations=120,
            fidelity_observations=40,
        ),
    )
    link = Moody()
    compressor = Compressor(
        [make_ladder(config, tools.flat)[0].add(link)],
        tools.flat,
        config.compressor,
        seed=1,
        clock=tools.Clock(),
    )
    visited = some_observations(tools.flat, 160)
    compressor.observe(seen(visited))
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    assert compressor.artifact.chain == "onnx>moody"
    link.spoil = flipped
    tensors = some_tensors(tools.flat, 2)
    compressor.compress(PolicyVersion(0, 2), tensors)
    assert (compressor.artifact.at, compressor.artifact.chain) == (PolicyVersion(0, 2), "fuse>onnx")
    assert compressor.errors == {"unfaithful": 1}
    if every > 1:
        # the comparison that goes on is that of version 1
        gauges = compressor.gauges()
        assert gauges["kl_mean"] < 1e-6 and gauges["kl_observations"] == 8.0
        return
    # the gauges have the distance of the unpublished artifact
    logits = float64_parameters(tools.flat, tensors, visited[3::4])
    log_pi, log_mu = (z - np.log(np.exp(z).sum(1, keepdims=True)) for z in (logits, -logits))
    kl = (np.exp(log_pi) * (log_pi - log_mu)).sum(1)
    gauges = compressor.gauges()
    assert gauges["compressed"] == 0.0 and kl.min() < gauges["kl_mean"] < kl.max()
    expected = {"kl_mean": kl.mean(), "kl_variance": kl.var()}
    assert {name: gauges[name] for name in expected} == pytest.approx(expected, rel=1e-3)


def enormous(tensors):
    """Finite weights whose logits are not: each is the sum of five times 3e38."""
    large = {"hidden.0.bias": 9.0, "policy.weight": 3e38, "policy.bias": 3e38}
    return {n: np.full_like(t, large[n]) if n in large else t for n, t in tensors.items()}


@pytest.mark.parametrize("observed", [0, 40])
def test_a_link_whose_parameters_are_not_finite_is_a_failing_link(roles, tools, observed) -> None:
    link, compressor = make_moody(tools)
    link.spoil = enormous
    if observed:
        compressor.observe(seen(some_observations(tools.flat, observed)))
    compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
    assert compressor.errors == {"RefusedTensors": 1}
    assert compressor.artifact.chain == "fuse>onnx"
    pulling = Pulling(roles, tools)
    pulling.pull(compressor)
    assert pulling.client.at == PolicyVersion(0, 1)


def test_a_policy_whose_own_parameters_are_not_finite_is_not_published_at_all(tools) -> None:
    _, compressor = make_moody(tools)
    compressor.observe(seen(some_observations(tools.flat, 40)))
    compressor.compress(PolicyVersion(0, 1), enormous(some_tensors(tools.flat, 1)))
    assert compressor.artifact is None and compressor.known == PolicyVersion(0, 1)
    assert compressor.newer_than(PolicyId(), uncompressed=True) is None
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
    # an invalid gauge would end the compressor with its next heartbeat
    link.gauges = lambda memory: {"two words": 1.0, "two\nlines": 1.0, "x" * 1025: 1.0, "fine": 2.0}
    gauges = compressor.gauges()
    assert [name for name in gauges if name.startswith("moody")] == ["moody_fine"]
    assert compressor.errors == {"gauges": 1}
    assert sum("event=no_gauges" in record.msg for record in caplog.records) == 1


def test_a_new_student_acts_once_it_is_near_its_policy(tools) -> None:
    student = {"student": "mlp", "hidden": [16], "learning_rate": 0.01}
    distill = {"distill": {**student, "first_steps": 1, "steps": 40}}
    compressor = make(tools, [distill, "onnx"], max_kl=0.1)
    compressor.observe(seen(some_observations(tools.flat, 256)))
    tensors = some_tensors(tools.flat, 1)
    tensors["policy.weight"] *= 10  # a policy with clear preferences
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
            compressor.observe(seen(some_observations(tools.flat, observed)))
        compressor.compress(PolicyVersion(0, 1), some_tensors(tools.flat, 1))
        assert (compressor.artifact.chain, compressor.errors["unfaithful"]) == (chain, 0)
        distances = {"kl_mean", "kl_variance", "kl_max", "agreement"}
        assert not distances & set(compressor.gauges())


def test_links_that_have_no_effect_are_told_once(tools, caplog) -> None:
    make(tools, [{"prune": 0.5}, {"distill": "mlp"}, "onnx"])
    make(tools, [{"prune": 0.5}, "distill", "onnx"])
    [record] = caplog.records
    assert "event=links_without_effect" in record.message and "prune=0.5" in record.message


def test_gauges_tell_of_the_newest_artifact(tools) -> None:
    compressor = make(tools, ["int8", "onnx"])
    assert compressor.gauges() == {"rung": 0.0}
    compressor.observe(seen(some_observations(tools.flat, 40)))
    compressor.compress(PolicyVersion(0, 4), some_tensors(tools.flat, 1))
    gauges = compressor.gauges()
    assert gauges["artifact_version"] == 4 and gauges["compressed"] == 1
    assert 0 < gauges["kl_mean"] < 0.1
    assert gauges["artifact_bytes"] == compressor.artifact.bytes > 0


def test_the_interval_of_artifacts_is_the_mean_of_the_newest(tools) -> None:
    link, compressor = make_moody(tools)
    gauges = []
    # 3 s for the first interval, then 1 s each; a version that fails makes no artifact
    for version, pause_s in enumerate([0.0, 3.0, 0.5, 0.5, *[1.0] * 16], start=1):
        compressor._clock.now += pause_s
        link.error = RuntimeError("not this one") if version == 3 else None
        compressor.compress(PolicyVersion(0, version), some_tensors(tools.flat, 1))
        gauges.append(compressor.gauges().get("artifact_interval_s"))
    assert gauges[0] is None
    # after the fourth version: 3 s and 1 s
    assert gauges[1:4] == pytest.approx([3.0, 3.0, 2.0])
    # intervals 1 to 16 of 18, then 2 to 17, without the long one
    assert gauges[17:] == pytest.approx([18 / 16, 1.0, 1.0])
    assert compressor.counters()["artifacts"] == 19


def test_the_longest_id_that_a_chain_may_have_travels(tools) -> None:
    class Wordy(Moody):
        id = "x" * (1000 - len(">onnx"))

    chain = CompressorChain(fidelity_observations=0).add(Wordy()).add(ONNX())
    chain.plan(tools.flat)
    policy = Policy.of(tools.flat, some_tensors(tools.flat, 1), PolicyVersion(0, 1))
    reply = reply_of(chain.compress(policy, Context()))
    frames = [bytes(part) for part in encode(reply, run="r", incarnation="s", sequence=1)]
    assert artifact_of(decode(frames).message).chain == chain.id
    # the trainer counts its steps under a longer name
    steps = ChainSteps()
    steps.add({chain.id: 7})
    counts = Heartbeat(counters=steps.counters())
    frames = [bytes(part) for part in encode(counts, run="r", incarnation="s", sequence=1)]
    assert decode(frames).message.counters == counts.counters != {}


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
    with pytest.raises(RefusedArtifact, match="not an artifact"):
        artifact_of(reply)


def test_the_share_of_compressed_steps_is_that_of_changed_policies(tools) -> None:
    valid = np.array([[True, False], [True, True], [False, True]])  # four of six
    chains = [("int8>onnx", 6), ("none", 6), ("fuse>onnx", 6), ("prune=0.5>torchscript", 4)]
    unrolls = [
        tools.make_unroll(chains=[chain], **({} if steps == 6 else {"valid": valid}))
        for chain, steps in chains
    ]
    steps = sum((Counter(unroll.steps_by_chain()) for unroll in unrolls), Counter())
    assert compressed_share(steps) == pytest.approx(10 / 22)
    assert compressed_share({}) == 0.0
