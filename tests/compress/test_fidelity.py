"""Fidelity: the divergence of an artifact from its policy, and their agreement."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest

from aclearn.distributions import distribution_of
from aclearn.types import ActionSpec
from aclearn.types.action_spec import ActionPart
from compress import (
    ONNX,
    CompressorChain,
    Context,
    Fidelity,
)
from tests.support.contexts import seen
from tests.support.toys.illegal_link import Illegal

_TWICE = ActionSpec.of((ActionPart(shape=(2,), counts=(2, 2), starts=(0, 0)),))
_SOME = distribution_of(ActionSpec.discrete(4))


def by_loops(original, compressed):
    """KL of each state and the number of agreements, action by action."""
    kls, same = [], 0
    for a, b in zip(original.tolist(), compressed.tolist(), strict=True):
        p, q = ([math.exp(x - max(row)) for x in row] for row in (a, b))
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        kls.append(sum(x * math.log(x / y) for x, y in zip(p, q, strict=True)))
        same += a.index(max(a)) == b.index(max(b))
    return kls, same


def test_fidelity_is_what_loops_over_states_and_actions_give() -> None:
    rng = np.random.default_rng(0)
    original = rng.normal(0, 2, (50, 6)).astype(np.float32)
    compressed = (original + rng.normal(0, 0.7, original.shape)).astype(np.float32)
    kls, same = by_loops(original, compressed)
    mean = sum(kls) / 50
    fidelity = Fidelity.of(_SOME, original, compressed, 7)
    assert fidelity.kl_mean == pytest.approx(mean, rel=1e-9)
    assert fidelity.kl_variance == pytest.approx(sum((k - mean) ** 2 for k in kls) / 50, rel=1e-9)
    assert fidelity.kl_max == pytest.approx(max(kls), rel=1e-9)
    assert fidelity.agreement == same / 50 and 0 < same < 50
    assert (fidelity.observations, fidelity.version) == (50, 7)


def test_fidelity_of_equal_policies_is_perfect_and_never_negative() -> None:
    logits = np.random.default_rng(1).normal(0, 30, (200, 4)).astype(np.float32)
    fidelity = Fidelity.of(_SOME, logits, logits + np.float32(5), 0)  # a shift changes no policy
    assert 0.0 <= fidelity.kl_mean <= fidelity.kl_max < 1e-6
    assert fidelity.agreement == 1.0
    assert Fidelity.of(_SOME, logits[:0], logits[:0], 3) == Fidelity(version=3)
    # and finite where probabilities are 0 in float32
    original, compressed = np.float32([[0, 500]]), np.float32([[500, 0]])
    assert Fidelity.of(_SOME, original, compressed, 0).kl_max == pytest.approx(500.0)


@pytest.mark.parametrize("spec", [ActionSpec.discrete(4), _TWICE])
def test_policies_that_differ_only_in_masked_actions_are_the_same(spec) -> None:
    rng, masks = np.random.default_rng(2), np.array([[True, False, True, True]] * 20)
    original = rng.normal(size=(20, 4)).astype(np.float32)
    compressed = original + np.float32([0, 100, 0, 0])
    assert Fidelity.of(distribution_of(spec), original, compressed, 1).kl_max > 50
    found = Fidelity.of(distribution_of(spec), original, compressed, 1, masks)
    assert astuple(found) == (0.0, 0.0, 0.0, 1.0, 20, 1)


def test_fidelity_is_that_of_the_acting_policy_min_action_prob_included(small) -> None:
    policy, observations = small.policy(small.flat), small.observations(small.flat, 8)
    policy.tensors["policy.weight"][...] = 0
    policy.tensors["policy.bias"][:] = np.log([0.7, 0.1, 0.1, 0.1])
    for allowed, expected in (
        # 0.1 for each of four actions: 0.6 · 0.7 + 0.1 and 0.6 · 0.1 + 0.1
        ([True] * 4, 0.7 * math.log(0.7 / 0.52) + 0.3 * math.log(0.1 / 0.16)),
        # of two: 0.8 · 0.875 + 0.1 and 0.8 · 0.125 + 0.1
        ([True, True, False, False], 0.875 * math.log(0.875 / 0.8) + 0.125 * math.log(0.125 / 0.2)),
    ):
        context = Context(seen(observations, np.tile(allowed, (8, 1))))
        chain = CompressorChain(min_action_prob=0.1).add(ONNX())
        found = chain.compress(policy, context).fidelity
        assert found.kl_mean == pytest.approx(expected, rel=1e-5)


def test_a_chain_compares_only_the_actions_that_were_allowed(small) -> None:
    chain = CompressorChain(fidelity_observations=12, fidelity_every=3).add(Illegal()).add(ONNX())
    observations = small.observations(small.flat, 16)
    masks = np.ones((16, 4), np.bool_)
    masks[:12, 3] = False
    held_out = seen(observations, masks)
    for rows, differs in ((slice(12), False), (slice(4, None), True)):
        chain.meter.forget()
        context = Context(seen(observations), held_out=held_out.take(rows))
        for _ in range(3):
            fidelity = chain.compress(small.policy(small.flat), context).fidelity
        assert fidelity.observations == 12
        assert (fidelity.kl_max > 50, fidelity.agreement < 1) == (differs, differs)
        assert differs or fidelity.kl_max < 1e-6
