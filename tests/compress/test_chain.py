"""Chains: their ids, invalid orders, and state between versions."""

from __future__ import annotations

import itertools
import math
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from compress import (
    ONNX,
    ArtifactRuntime,
    ChainError,
    CompressorChain,
    Context,
    Fusion,
    Link,
    NeedsObservations,
    Pruning,
    RefusedTensors,
    TorchScript,
    parse_chain,
)
from compress.methods.distiller import Distiller
from compress.methods.quantizer import Quantizer
from tests.support.architectures import altered
from tests.support.contexts import context_of, seen


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
        ([Fusion, Distiller], "distill: comes after fuse, which folds .*; put it before"),
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
    half = "é" * 249  # of two bytes each
    # 498 + 1 + 496 + 1 + 4 bytes with those of ">" and "onnx"
    fits = chain_of(Named(half), Named(half[:248]), ONNX())
    fits.plan(small.flat)
    assert len(fits.id.encode()) == 1000
    with pytest.raises(ChainError, match=r"chain: an id of 1002 bytes, at most 1000 are allowed"):
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
    artifact = chain.compress(small.policy(small.images, seed=3, version=3), context)
    assert context.memory(moody.state_key)["versions"] == [1, 2, 3]
    ArtifactRuntime(small.images).load(artifact)  # which is compared with integers: conftest.py


def test_a_link_that_makes_no_sense_of_its_tensors_is_found_before_it_travels(small) -> None:
    class Broken(Moody):
        def compress(self, policy, context):
            infinite = policy.tensors["policy.bias"] + np.float32("inf")
            return policy.become(policy.graph, {**policy.tensors, "policy.bias": infinite})

    with pytest.raises(RefusedTensors, match=r"'policy.bias'.: not finite"):
        chain_of(Broken(), ONNX()).compress(small.policy(small.images), Context())


def test_the_same_link_twice_remembers_apart_and_its_seconds_in_a_version_add_up(
    small, monkeypatch
) -> None:
    ticks = itertools.count()  # a second passes between two readings of the clock
    monkeypatch.setattr("compress.chain.perf_counter", lambda: float(next(ticks)))
    first, second = Moody(), Moody()
    chain, context = chain_of(first, second, Quantizer("bf16"), ONNX(), batch_sizes=()), Context()
    assert (first.state_key, second.state_key) == ("0:moody", "1:moody")
    policy = small.policy(small.images)
    for tensor in policy.tensors.values():
        tensor.flags.writeable = False  # as the arrays of a message are
    for _ in range(2):
        chain.compress(policy, context)
        assert chain.seconds.items() >= {"check": 1.0, "moody": 2.0, "bf16": 1.0}.items()
    assert context.memory(first.state_key) is not context.memory(second.state_key)


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


def test_a_chain_attends_after_each_link_and_in_each_step_of_a_student(small) -> None:
    attended: list[str] = []
    context = context_of(small.observations(small.flat, 64), attend=lambda: attended.append("."))
    chain = parse_chain([{"distill": {"steps": 3, "first_steps": 7}}, "int8", "onnx"])
    policy = small.policy(small.flat)
    chain.compress(policy, context)
    of_the_chain = 3 + 2  # before and after the comparison
    assert len(attended) == 7 + of_the_chain
    chain.compress(policy, context)
    assert len(attended) == 7 + 3 + 2 * of_the_chain
