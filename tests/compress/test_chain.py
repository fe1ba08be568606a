"""Chains: their ids, invalid orders, and state between versions."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from aclearn.types import Visited
from compress import (
    ONNX,
    ArtifactRuntime,
    ChainError,
    CompressorChain,
    Context,
    Link,
    NeedsObservations,
    OnnxRuntime,
    Pruning,
    RefusedTensors,
    TorchScript,
)
from compress.methods.distiller import Distiller
from compress.methods.quantizer import Quantizer
from tests.support.acting import Acting
from tests.support.architectures import altered
from tests.support.contexts import context_of, seen
from tests.support.distillation import distance


def int8(**settings):
    return Quantizer("INT8", reduced_range=False, **settings)


def chain_of(*links, **options):
    chain = CompressorChain(**options)
    for link in links:
        chain.add(link)
    return chain


class Moody(Link):
    """Halves all weights, or raises its error."""

    error: Exception | None = None

    @property
    def id(self) -> str:
        return "moody"

    def plan(self, graph):
        return graph

    def compress(self, policy, context):
        memory = context.memory(self.state_key)
        memory["versions"] = [*memory.get("versions", []), policy.at.version]
        if self.error is not None:
            raise self.error
        return policy.become(
            policy.graph, {name: tensor / np.float32(2) for name, tensor in policy.tensors.items()}
        )


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        ([TorchScript, ONNX], "onnx: comes after torchscript; a chain has one static graph"),
        ([int8, Distiller, ONNX], "distill: comes after the quantisation to int8.*put it before"),
        ([int8], "int8: int8 computes in ONNX Runtime only; end the chain in onnx"),
        ([int8, TorchScript], "torchscript: int8 computes in ONNX Runtime only"),
    ],
)
def test_orders_that_cannot_work_are_refused_before_the_run(small, links, reason) -> None:
    with pytest.raises(ChainError, match=reason):
        chain_of(*(link() for link in links)).plan(small.images)


class Named(Moody):
    """Has the id of its argument."""

    id = "named"

    def __init__(self, name):
        self.id = name


@pytest.mark.parametrize(
    "name", ["", "two words", "two\nlines", "mine>onnx", "\ud800", "x" * 1025, 7, None]
)
def test_an_id_that_is_no_word_is_refused_before_the_run(small, name) -> None:
    with pytest.raises(ChainError, match="Named: id: expected one printable word without '>', got"):
        chain_of(Named(name), ONNX()).plan(small.flat)


def test_ids_that_are_too_long_together_are_refused_before_the_run(small) -> None:
    half = "é" * 255  # of two bytes each
    # 510 + 1 + 508 + 1 + 4 bytes with those of ">" and "onnx"
    fits = chain_of(Named(half), Named(half[:254]), ONNX())
    fits.plan(small.flat)
    assert len(fits.id.encode()) == 1024
    with pytest.raises(ChainError, match=r"chain: an id of 1026 bytes, at most 1024 are allowed"):
        chain_of(Named(half), Named(half), ONNX()).plan(small.flat)


def test_min_action_prob_is_a_probability_that_leaves_something_to_the_policy(small) -> None:
    for min_action_prob in (-0.1, 1.0, math.nan, math.inf):
        with pytest.raises(ChainError, match="min_action_prob: expected at least 0, below 1"):
            CompressorChain(min_action_prob=min_action_prob)
    assert chain_of(ONNX(), min_action_prob=0.33).plan(small.images).static
    with pytest.raises(
        ChainError, match=r"min_action_prob: 0.34 for each of 3 actions.*less than 0.333"
    ):
        chain_of(ONNX(), min_action_prob=0.34).plan(small.images)


@pytest.mark.parametrize(
    "links",
    [
        [],
        [ONNX],
        [TorchScript],
        [int8, ONNX],
        [lambda: Quantizer("fp16"), TorchScript],
        [lambda: Quantizer("bf16"), ONNX],
        [lambda: Distiller(first_steps=1), int8, ONNX],
    ],
    ids=["none", "onnx", "torchscript", "int8", "fp16", "bf16", "distilled"],
)
def test_what_is_made_is_what_was_planned(architecture, small, links) -> None:
    chain = chain_of(*(link() for link in links))
    planned = chain.plan(architecture)
    policy = small.policy(architecture, version=4)
    artifact = chain.compress(policy, context_of(small.observations(architecture, 16)))
    assert artifact.graph == planned
    assert list(artifact.tensors) == list(planned.tensors())
    assert artifact.chain == chain.id
    assert artifact.at == policy.at
    assert artifact.original == architecture.digest()
    assert artifact.digest == artifact.computed_digest()


def test_the_chain_of_no_links_is_the_policy_itself(small) -> None:
    policy = small.policy(small.images)
    artifact = CompressorChain().compress(policy, Context())
    for name, tensor in artifact.tensors.items():
        np.testing.assert_array_equal(tensor, policy.tensors[name])
    ArtifactRuntime(small.images).load(artifact)  # which is compared with torch: see conftest.py


def test_a_link_that_needs_observations_waits_for_them(small) -> None:
    moody = Moody()
    chain, context = chain_of(moody, int8(), ONNX()), Context()
    policy = small.policy(small.images)
    with pytest.raises(NeedsObservations, match="int8 needs observations that actors visited"):
        chain.compress(policy, context)
    assert context.memory(moody.state_key) == {}  # nor did the link before it work in vain
    context.visited = seen(small.observations(small.images, 8))
    assert chain.compress(policy, context).fidelity.observations == 8


def test_links_before_a_named_student_are_not_run_since_they_have_no_effect(small) -> None:
    student, made = altered(small.flat, hidden=(6, 6)), []
    for before in ([], [Moody(), Pruning(importance="activation")]):
        chain = chain_of(*before, Distiller(student, first_steps=2), ONNX(), batch_sizes=())
        context = context_of(small.observations(small.flat, 64), seed=2)
        artifact = chain.compress(small.policy(small.flat), context)
        assert chain.without_effect == tuple(before)
        assert all(context.memory(link.state_key) == {} for link in before)
        made.append(artifact.tensors)
        gauges = {f"distill_{name}" for name in ("loss", "kl", "steps", "deaths")}
        assert set(chain.gauges(context)) == gauges
    for name, tensor in made[0].items():
        np.testing.assert_array_equal(made[1][name], tensor)


def test_a_student_without_a_name_is_the_pruned_policy_trained_further(small) -> None:
    training = Distiller(first_steps=1, steps=1, learning_rate=1e-5)
    made = []
    for links in ([Pruning(0.5, round_to=1)], [Pruning(0.5, round_to=1), training]):
        chain = chain_of(*links, ONNX(), batch_sizes=())
        assert chain.without_effect == ()
        context = context_of(small.observations(small.images, 64), seed=2)
        made.append(chain.compress(small.policy(small.images), context))
    pruned, trained = made
    widths = [len(tensor) for name, tensor in trained.tensors.items() if name.endswith("weight")]
    assert widths == [3, 3, 8, 4, 3]  # half of 5 and 6 filters, of 16 and 8 units; 3 actions
    assert trained.graph.architecture == pruned.graph.architecture
    # one step of Adam moves each weight by at most its learning rate
    assert 0 < distance(trained.tensors, pruned.tensors) < 1.01e-5


def test_weights_that_are_not_finite_enter_no_link(small) -> None:
    moody = Moody()
    chain, context = chain_of(moody, ONNX()), Context()
    policy = small.policy(small.images)
    policy.tensors["value.weight"][0, 0] = np.nan
    with pytest.raises(RefusedTensors, match=r"'value.weight'.: not finite"):
        chain.compress(policy, context)
    assert context.memory(moody.state_key) == {}


def test_what_a_link_of_ones_own_raises_comes_out_and_the_chain_goes_on(small) -> None:
    moody = Moody()
    chain = chain_of(moody, int8(calibrate_every=1), ONNX())
    context = context_of(small.observations(small.images, 16), seed=2)
    chain.compress(small.policy(small.images, version=1), context)
    moody.error = ZeroDivisionError("of another library")
    with pytest.raises(ZeroDivisionError, match="of another library"):
        chain.compress(small.policy(small.images, version=2), context)
    moody.error = None
    later = small.policy(small.images, seed=3, version=3)
    artifact = chain.compress(later, context)
    assert context.memory(moody.state_key)["versions"] == [1, 2, 3]
    runtime, plain = Acting(ArtifactRuntime(small.images)), Acting(OnnxRuntime(small.images))
    runtime.load(artifact)
    plain.load({name: tensor / np.float32(2) for name, tensor in later.tensors.items()})
    observations = small.observations(small.images, 8, seed=5)
    expected = plain.parameters(observations)
    difference = np.abs(runtime.parameters(observations) - expected).max()
    assert difference < 0.06 * np.abs(expected).max()


def test_a_link_that_makes_no_sense_of_its_tensors_is_found_before_it_travels(small) -> None:
    class Broken(Moody):
        def compress(self, policy, context):
            infinite = policy.tensors["policy.bias"] + np.float32("inf")
            return policy.become(policy.graph, {**policy.tensors, "policy.bias": infinite})

    with pytest.raises(RefusedTensors, match=r"'policy.bias'.: not finite"):
        chain_of(Broken(), ONNX()).compress(small.policy(small.images), Context())


def test_the_same_link_twice_remembers_apart_and_its_seconds_add_up(small) -> None:
    first, second = Moody(), Moody()
    chain, context = chain_of(first, second, ONNX()), Context()
    assert (first.state_key, second.state_key) == ("0:moody", "1:moody")
    chain.compress(small.policy(small.images), context)
    assert context.memory(first.state_key) is not context.memory(second.state_key)
    assert set(chain.seconds) >= {"moody", "onnx"}


def test_it_says_how_long_each_link_took_in_the_last_version(small) -> None:
    import time

    class Slow(Moody):
        busy_s = 0.02

        def compress(self, policy, context):
            until = time.perf_counter() + self.busy_s
            while time.perf_counter() < until:
                pass
            return policy

    slow = Slow()
    chain, context = chain_of(slow, Quantizer("bf16"), ONNX()), Context()
    for busy_s in (0.05, 0.01):
        slow.busy_s = busy_s
        chain.compress(small.policy(small.images), context)
        assert chain.seconds["moody"] >= busy_s
        assert {"check", "moody", "bf16", "onnx"} < set(chain.seconds)
        assert all(seconds >= 0.0 for seconds in chain.seconds.values())


def test_one_version_is_compared_on_a_part_of_the_observations_with_each_of_several(small) -> None:
    chain = chain_of(Quantizer("bf16"), ONNX(), fidelity_every=3, fidelity_observations=8)
    context = Context()
    found = []
    for version in range(1, 11):
        if version == 2:  # none is measured before there are observations
            context.visited = seen(small.observations(small.images, 8))
        policy = small.policy(small.images, seed=version, version=version)
        fidelity = chain.compress(policy, context).fidelity
        found.append((fidelity.version, fidelity.observations))
        if version in (4, 7, 10):  # the policies of one version, though others came meanwhile
            compared = small.policy(small.images, seed=version - 2, version=version - 2)
            at_once = chain_of(Quantizer("bf16"), ONNX(), fidelity_observations=8)
            expected = at_once.compress(compared, replace(context)).fidelity
            assert astuple(fidelity) == pytest.approx(astuple(expected), rel=1e-3)
    # the first one as far as it is, afterwards whole ones only
    assert found == [(1, 0), (2, 3), (2, 6), (2, 8), (2, 8), (2, 8), (5, 8), (5, 8), (5, 8), (8, 8)]
    chain.meter.forget()
    fidelity = chain.compress(small.policy(small.images, version=11), context).fidelity
    assert (fidelity.version, fidelity.observations) == (11, 3)


def test_each_version_may_be_checked_at_once_while_a_comparison_goes_on(small) -> None:
    options = {"fidelity_every": 4, "fidelity_observations": 8, "checked_observations": 5}
    chain = chain_of(Quantizer("bf16"), ONNX(), **options)
    context = context_of(small.observations(small.images, 8))
    for version in range(1, 4):
        policy = small.policy(small.images, seed=version, version=version)
        checked = chain.compress(policy, context).fidelity
        assert (checked.version, checked.observations) == (version, 5)
        assert (chain.meter.fidelity.version, chain.meter.fidelity.observations) == (1, 2 * version)


def test_fidelity_is_measured_on_what_was_held_out_from_the_links(small) -> None:
    seen, others = small.observations(small.images, 24), small.observations(small.images, 8) // 2
    policy = small.policy(small.images)
    found = [
        chain_of(Quantizer("bf16"), ONNX()).compress(policy, context).fidelity
        for context in (
            context_of(seen, held_out=others),
            context_of(others),
            context_of(seen),
            context_of(seen, held_out=others[:0]),  # none yet: better than no comparison
        )
    ]
    assert found[0] == found[1] and found[2] == found[3] and found[0] != found[2]
    assert [fidelity.observations for fidelity in found] == [8, 8, 24, 24]


def test_fidelity_can_be_turned_off(small) -> None:
    chain = chain_of(ONNX(), fidelity_observations=0)
    context = context_of(small.observations(small.images, 8))
    assert chain.compress(small.policy(small.images), context).fidelity.observations == 0


def test_fidelity_is_that_of_the_acting_policy_min_action_prob_included(small) -> None:
    policy = small.policy(small.flat)
    policy.tensors["policy.weight"][...] = 0
    policy.tensors["policy.bias"][:] = np.log([0.7, 0.1, 0.1, 0.1])
    # 0.1 for each of four actions: 0.6 · 0.7 + 0.1 and 0.6 · 0.1 + 0.1
    expected = 0.7 * math.log(0.7 / 0.52) + 0.3 * math.log(0.1 / 0.16)
    context = context_of(small.observations(small.flat, 8))
    fidelity = chain_of(ONNX(), min_action_prob=0.1).compress(policy, context).fidelity
    assert fidelity.kl_mean == pytest.approx(expected, rel=1e-5)
    assert chain_of(ONNX()).compress(policy, context).fidelity.kl_mean < 1e-6
    # of two that are allowed: 0.8 · 0.875 + 0.1 and 0.8 · 0.125 + 0.1
    expected = 0.875 * math.log(0.875 / 0.8) + 0.125 * math.log(0.125 / 0.2)
    masks = np.tile([[True, True, False, False]], (8, 1))
    masked = Context(seen(small.observations(small.flat, 8), masks), Visited())
    fidelity = chain_of(ONNX(), min_action_prob=0.1).compress(policy, masked).fidelity
    assert fidelity.kl_mean == pytest.approx(expected, rel=1e-5)


def test_latencies_are_measured_once_a_graph(small) -> None:
    chain = chain_of(ONNX(), batch_sizes=(1, 4))
    context = context_of(small.observations(small.images, 8))
    first, second = (
        chain.compress(small.policy(small.images, seed=seed), context).latency_ms for seed in (1, 2)
    )
    assert set(first) == {1, 4} and all(ms > 0.0 for ms in first.values())
    assert first == second  # two measurements never agree in every digit
    other = altered(small.images, hidden=(9,))
    assert chain.compress(small.policy(other), context).latency_ms != first


def test_latencies_are_those_of_one_thread(small, monkeypatch) -> None:
    seen, threads = [], torch.get_num_threads()

    def measured(executable, batch):
        seen.append(torch.get_num_threads())
        return 1.0

    monkeypatch.setattr("compress.chain.median_ms", measured)
    torch.set_num_threads(2)
    try:
        for links in ([], [TorchScript()]):
            chain_of(*links).compress(small.policy(small.images), Context())
        assert (seen, torch.get_num_threads()) == ([1, 1], 2)
    finally:
        torch.set_num_threads(threads)


def test_one_seed_gives_one_artifact(small) -> None:
    def made(seed):
        chain = chain_of(Distiller(first_steps=2), int8(), ONNX(), batch_sizes=())
        context = context_of(small.observations(small.images, 64), seed=seed)
        return [
            chain.compress(small.policy(small.images, seed=v, version=v), context).digest
            for v in (1, 2)
        ]

    assert made(1) == made(1)
    assert not set(made(1)) & set(made(2))


def test_compression_leaves_the_policy_as_it_was(small) -> None:
    policy = small.policy(small.images)
    kept = {name: tensor.copy() for name, tensor in policy.tensors.items()}
    for tensor in policy.tensors.values():
        tensor.flags.writeable = False  # as the arrays of a message are
    observations = small.observations(small.images, 16)
    observations.flags.writeable = False
    chain = chain_of(Distiller(first_steps=2), int8(), ONNX())
    runtime = Acting(ArtifactRuntime(small.images))
    runtime.load(chain.compress(policy, context_of(observations)))
    runtime.parameters(observations)
    assert all(np.array_equal(policy.tensors[name], kept[name]) for name in kept)
