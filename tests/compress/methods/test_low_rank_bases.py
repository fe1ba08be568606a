"""How the bases of factored layers follow weights that move."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from aclearn.types import PolicyVersion
from compress import (
    ArtifactRuntime,
    Context,
    LowRank,
    Policy,
    parse_chain,
)
from compress.methods.low_rank import (
    best_basis,
    improved_basis,
    kept_energy,
    orthogonal_factor,
    turned_towards,
)
from tests.support.acting import Acting
from tests.support.contexts import context_of
from tests.support.low_rank import IMAGES, compress, moved, product, truncated
from tests.support.random_policies import some_observations, some_tensors


def error_of(policy, name, weight):
    return np.linalg.norm(product(policy, name) - weight) / np.linalg.norm(weight)


def test_later_versions_are_as_good_as_an_svd() -> None:
    tensors = some_tensors(IMAGES, 4)
    left, values, right = np.linalg.svd(tensors["hidden.0.weight"], full_matrices=False)
    decaying = left * (values * 0.7 ** np.arange(20)) @ right
    tensors["hidden.0.weight"] = decaying.astype(np.float32)
    link, context = LowRank(5), Context()
    for version in range(12):
        tensors = moved(tensors, 0.05, version)
        weight = tensors["hidden.0.weight"]
        result = compress(link, IMAGES, tensors, context)
        best = np.linalg.norm(truncated(weight, 5) - weight) / np.linalg.norm(weight)
        assert best <= error_of(result, "hidden.0", weight) + 1e-6
        assert error_of(result, "hidden.0", weight) < 1.02 * best
        np.testing.assert_array_equal(result.tensors["hidden.0.up.bias"], tensors["hidden.0.bias"])
        np.testing.assert_array_equal(result.tensors["policy.weight"], tensors["policy.weight"])


def test_weights_that_jump_are_decomposed_afresh() -> None:
    link, context = LowRank(3), Context()
    first, second = (np.zeros((20, 72), np.float32) for _ in range(2))
    first[:3, :3] = np.diag([3.0, 2.0, 1.0])
    second[10:13, 40:43] = np.diag([1.0, 5.0, 1.0])  # of which the first knows nothing
    for weight in (first, second, first):
        tensors = {**some_tensors(IMAGES, 5), "hidden.0.weight": weight}
        result = compress(link, IMAGES, tensors, context)
        np.testing.assert_allclose(product(result, "hidden.0"), weight, atol=1e-6)


def test_the_halves_turn_as_little_as_the_weights_move() -> None:
    # ranges of the values between them are measured rarely: signs must not flip
    tensors = some_tensors(IMAGES, 6)
    link, context = LowRank(4), Context()
    before = compress(link, IMAGES, tensors, context).tensors
    for version in range(5):
        tensors = moved(tensors, 1e-3, version)
        after = compress(link, IMAGES, tensors, context).tensors
        for half in ("hidden.0.up.weight", "hidden.0.down.weight"):
            # a step of subspace iteration turns towards the largest values, by less than its size
            assert np.linalg.norm(after[half] - before[half]) < 0.2 * np.linalg.norm(before[half])
        before = after
    rng = np.random.default_rng(7)
    basis = best_basis(rng.normal(size=(9, 7)).astype(np.float32), 4)
    turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    turned = (basis @ turn * [1, -1, 1, -1]).astype(np.float32)
    np.testing.assert_allclose(turned_towards(turned, basis), basis, atol=1e-5)


@pytest.mark.parametrize("moved", [0.0, 1e-3, 0.02, 0.3, 5.0])
def test_the_nearest_orthogonal_matrix_is_that_of_the_singular_vectors(moved: float) -> None:
    rng = np.random.default_rng(3)
    turn, _ = np.linalg.qr(rng.normal(size=(48, 48)))
    matrix = (turn + moved * rng.normal(size=(48, 48)) / 48).astype(np.float32)
    left, _, right = np.linalg.svd(matrix.astype(np.float64))
    np.testing.assert_allclose(orthogonal_factor(matrix), left @ right, atol=2e-5)


def test_a_basis_of_weights_that_stay_does_not_turn() -> None:
    weights = some_tensors(IMAGES, 17)
    link, context, products = LowRank(4), Context(), []
    for version in range(12):
        # from new weights in the third version on, whose space is another one
        tensors = some_tensors(IMAGES, 16) if version < 2 else weights
        policy = link.compress(Policy.of(IMAGES, tensors, PolicyVersion(0, version)), context)
        products.append(policy.tensors["hidden.1.up.weight"])
    # subspace iteration alone turns it by a tenth of its length in each
    for one, next_one in pairwise(products[2:]):
        assert np.abs(one.T @ next_one - np.eye(4)).max() < 0.02


def test_after_a_jump_the_halves_are_turned_back_as_far_as_can_be() -> None:
    link, context = LowRank(3), Context()
    ups = []
    for rows, values in (([0, 1, 2], [3.0, 2.0, 1.0]), ([0, 1, 10], [1.0, 2.0, 5.0])):
        weight = np.zeros((20, 72), np.float32)
        weight[rows, [0, 1, 2]] = values
        tensors = {**some_tensors(IMAGES, 5), "hidden.0.weight": weight}
        ups.append(compress(link, IMAGES, tensors, context).tensors["hidden.0.up.weight"])
    np.testing.assert_allclose(ups[1][:, :2], ups[0][:, :2], atol=1e-6)
    np.testing.assert_allclose(np.abs(ups[1][10]), [0.0, 0.0, 1.0], atol=1e-6)


def test_one_step_of_iteration_comes_nearer_to_the_best_space() -> None:
    rng = np.random.default_rng(8)
    weight = (rng.normal(size=(20, 30)) * 0.6 ** np.arange(30)).astype(np.float32)
    basis, _ = np.linalg.qr(rng.normal(size=(20, 4)).astype(np.float32))
    energies = [kept_energy(weight, basis)]
    for _ in range(8):
        basis = improved_basis(weight, basis)
        np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-5)
        energies.append(kept_energy(weight, basis))
    assert all(later >= earlier - 1e-6 for earlier, later in pairwise(energies))
    best = kept_energy(weight, best_basis(weight, 4))
    assert energies[0] < 0.8 * best
    assert energies[-1] == pytest.approx(best, rel=1e-3)


def test_a_basis_that_is_computed_afresh_is_calibrated_at_once() -> None:
    chain = parse_chain([{"low_rank": 4}, {"int8": {"calibrate_every": 1000}}, "onnx"])
    exact_chain = parse_chain([{"low_rank": 4}, "onnx"])
    observations = some_observations(IMAGES, 40)
    context, exact_context = context_of(observations), context_of(observations)
    actor, exact_actor = Acting(ArtifactRuntime(IMAGES)), Acting(ArtifactRuntime(IMAGES))
    quantizer = chain.links[1]
    # hidden weights of other directions, and four times as large, from version 11 on
    later = {
        name: tensor * np.float32(4.0 if name.startswith("hidden") else 1.0)
        for name, tensor in some_tensors(IMAGES, 17).items()
    }
    counts, breaks = [], []
    for version in range(1, 16):
        tensors = some_tensors(IMAGES, 16) if version < 11 else later
        policy = Policy.of(IMAGES, tensors, PolicyVersion(0, version))
        actor.load(chain.compress(policy, context))
        exact_actor.load(exact_chain.compress(policy, exact_context))
        expected = exact_actor.parameters(observations)
        error = np.abs(actor.parameters(observations) - expected).max() / np.abs(expected).max()
        assert error < 0.1
        counts.append(context.memory(quantizer.state_key)["calibrations"])
        breaks.append(context.breaks)
    # at 1, 2, 4 and 8; then at 11, 12 and 14
    assert counts == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 6, 6, 7, 7]
    assert breaks == [0] * 10 + [2] * 5  # one for each hidden layer
