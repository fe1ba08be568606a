"""MultiDiscrete, Box and mixed actions: probabilities against sums and integrals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from aclearn.distributions import distribution_of, torch_distribution_of
from aclearn.types import ActionSpec
from aclearn.types.action_spec import ActionPart


def _box(n: int) -> ActionPart:
    return ActionPart(("box",), (n,), "float32", low=(-1.0,) * n, high=(1.0,) * n)


_CHOICES = ActionPart(("choices",), (3,), counts=(3, 2, 4), starts=(0, 0, 0))
MULTI = ActionSpec.of((_CHOICES,))
BOX = ActionSpec.of((_box(2),))
SQUASHED = ActionSpec.of((_box(2),), squash=True)
MIXED = ActionSpec.of((_box(2), _CHOICES))
SQUASHED_MIXED = ActionSpec.of((_box(2), _CHOICES), squash=True)
ALL = [MULTI, BOX, SQUASHED, MIXED, SQUASHED_MIXED]


def _some(spec: ActionSpec, rows: int, seed: int) -> np.ndarray:
    """Parameters of moderate size: log standard deviations from about -1 to 1."""
    count = distribution_of(spec).parameter_count
    return np.random.default_rng(seed).normal(0, 0.7, (rows, count)).astype(np.float32)


def _joint(logits: np.ndarray, mask: np.ndarray | None = None) -> dict[tuple[int, ...], float]:
    """The probability of each triple of choices, by products of softmaxes in Python."""
    choices = []
    for start, stop in ((0, 3), (3, 5), (5, 9)):
        weights = [math.exp(float(logits[i])) for i in range(start, stop)]
        if mask is not None:
            weights = [w * bool(mask[start + i]) for i, w in enumerate(weights)]
        choices.append([w / sum(weights) for w in weights])
    return {
        taken: math.prod(p[i] for p, i in zip(choices, taken, strict=True))
        for taken in itertools.product(range(3), range(2), range(4))
    }


@pytest.mark.parametrize("masked", [False, True])
def test_choices_are_independent_categoricals(masked: bool) -> None:
    distribution, family = distribution_of(MULTI), torch_distribution_of(MULTI)
    p, q = _some(MULTI, 20, 0), _some(MULTI, 20, 1)
    mask = None
    if masked:
        mask = np.random.default_rng(2).random((20, 9)) < 0.5
        mask[:, [1, 4, 6]] = True
    one, other = distribution.mask(p, mask), distribution.mask(q, mask)
    torch_mask = None if mask is None else torch.from_numpy(mask)
    in_torch = [family(torch.from_numpy(x), torch_mask) for x in (p, q)]
    taken = np.tile(np.array([1, 1, 1], np.int32), (20, 1))
    logs, entropies, distances = [], [], []
    for b in range(20):
        row = None if mask is None else mask[b]
        mine, its = _joint(p[b], row), _joint(q[b], row)
        logs.append(math.log(mine[1, 1, 1]))
        entropies.append(-sum(x * math.log(x) for x in mine.values() if x))
        distances.append(sum(x * math.log(x / its[a]) for a, x in mine.items() if x))
    within = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(distribution.log_prob(one, taken), logs, **within)
    np.testing.assert_allclose(distribution.entropy(one), entropies, **within)
    np.testing.assert_allclose(distribution.kl(one, other), distances, **within)
    in_torch_log = in_torch[0].log_prob(torch.from_numpy(taken).long())
    np.testing.assert_allclose(in_torch_log, logs, **within)
    np.testing.assert_allclose(in_torch[0].entropy(), entropies, **within)
    np.testing.assert_allclose(in_torch[0].kl(in_torch[1]), distances, **within)


def _grid(low: float, high: float) -> np.ndarray:
    return np.linspace(low, high, 40_001)


def _density(mean: float, std: float, u: np.ndarray) -> np.ndarray:
    return np.exp(-(((u - mean) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))


def test_a_gaussian_has_the_density_entropy_and_distance_of_integrals() -> None:
    distribution, family = distribution_of(BOX), torch_distribution_of(BOX)
    p, q = _some(BOX, 10, 3), _some(BOX, 10, 4)
    actions = np.random.default_rng(5).normal(size=(10, 2)).astype(np.float32)
    u = _grid(-30, 30)
    logs, entropies, distances = np.zeros((3, 10))
    for b, i in itertools.product(range(10), range(2)):
        mine = _density(p[b, i], math.exp(p[b, 2 + i]), u)
        its = _density(q[b, i], math.exp(q[b, 2 + i]), u)
        with np.errstate(divide="ignore", invalid="ignore"):
            entropies[b] -= np.trapezoid(np.where(mine > 0, mine * np.log(mine), 0), u)
            inside = np.where((mine > 0) & (its > 0), mine * np.log(mine / its), 0)
        distances[b] += np.trapezoid(inside, u)
        logs[b] += math.log(_density(p[b, i], math.exp(p[b, 2 + i]), actions[b, i]))
    one, other = (family(torch.from_numpy(x)) for x in (p, q))
    within = {"rtol": 2e-4, "atol": 2e-5}
    for found in (distribution.log_prob(p, actions), one.log_prob(torch.from_numpy(actions))):
        np.testing.assert_allclose(found, logs, **within)
    for found in (distribution.entropy(p), one.entropy()):
        np.testing.assert_allclose(found, entropies, **within)
    for found in (distribution.kl(p, q), one.kl(other)):
        np.testing.assert_allclose(found, distances, **within)


def test_squashing_is_the_change_of_variables() -> None:
    distribution, family = distribution_of(SQUASHED), torch_distribution_of(SQUASHED)
    for mean, std in ((0.0, 1.0), (0.7, 0.3), (-1.5, 0.6), (0.2, 2.0)):
        p = np.array([[mean, 0.0, math.log(std), 0.0]], np.float32)
        u = _grid(mean - 9 * std, mean + 9 * std)
        a = np.tanh(u)
        # the density of a by what lies between two neighbouring points: no derivative of tanh
        inner = (np.abs(a) < 0.999).nonzero()[0][1:-1]
        mass = _density(mean, std, u) * (u[1] - u[0])
        by_mass = mass[inner] / ((a[inner + 1] - a[inner - 1]) / 2)
        actions = np.stack([u, np.zeros_like(u)], 1).astype(np.float32)
        second = math.log(_density(0.0, 1.0, np.zeros(1))[0])  # of a = 0, where tanh has slope 1
        rows = np.broadcast_to(p, (len(u), 4))
        logs = distribution.log_prob(rows, actions) - second
        np.testing.assert_allclose(np.exp(logs[inner]), by_mass, rtol=2e-3)
        in_torch = family(torch.from_numpy(rows.copy())).log_prob(torch.from_numpy(actions))
        np.testing.assert_allclose(in_torch - second, logs, rtol=1e-4, atol=1e-4)
        # −∫ p(a) log p(a) da, as an integral over u, of both numbers
        entropy = -np.trapezoid(_density(mean, std, u) * logs, u)
        v = _grid(-9, 9)
        slope = 2 * (math.log(2) - np.abs(v) - np.log1p(np.exp(-2 * np.abs(v))))
        other = 0.5 * math.log(2 * math.pi * math.e) + np.trapezoid(_density(0, 1, v) * slope, v)
        np.testing.assert_allclose(distribution.entropy(p), entropy + other, atol=1e-5)


@pytest.mark.parametrize("log_std", [-10.0, -2.0, -0.5, 0.0, 1.0, 2.0, 3.0, 4.0])
def test_the_entropy_of_squashed_numbers_is_exact_at_every_deviation_and_mean(log_std) -> None:
    means, std = np.array([0.0, 0.3, -1.0, 3.0, -8.0, 30.0], np.float32), math.exp(log_std)
    p = np.stack([means, np.full_like(means, log_std)], 1)
    expected, slopes = [], []
    for mean in means.tolist():
        # trapezoids of a smooth function that vanishes at both ends: from 20 points a unit on exact
        u = np.linspace(mean - 12 * std, mean + 12 * std, int(24 * max(std, 1.0) * 40) + 1)
        density, size = _density(mean, std, u), np.abs(u)
        slope = 2 * (math.log(2) - size - np.log1p(np.exp(-2 * size)))
        expected.append(log_std + 0.5 * math.log(2 * math.pi * math.e))
        expected[-1] += np.trapezoid(density * slope, u)
        # d/dμ E f(μ + σ z) = E f'
        slopes.append(np.trapezoid(density * -2 * np.tanh(u), u))
    spec = ActionSpec.of((_box(1),), squash=True)
    np.testing.assert_allclose(distribution_of(spec).entropy(p), expected, rtol=0, atol=2e-7)
    tensor = torch.from_numpy(p).requires_grad_()
    found = torch_distribution_of(spec)(tensor).entropy()
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-6, atol=2e-6)
    found.sum().backward()
    np.testing.assert_allclose(tensor.grad[:, 0], slopes, rtol=1e-4, atol=1e-5)


def test_far_samples_have_finite_squashed_densities_and_gradients() -> None:
    p = np.array([[0.0, 0.0, 0.0, 0.0]], np.float32)
    far = np.array([[50.0, -80.0]], np.float32)
    # log N(50) + log N(-80) + (100 − 2 log 2) + (160 − 2 log 2)
    expected = -0.5 * (50**2 + 80**2) - math.log(2 * math.pi) + 260 - 4 * math.log(2)
    np.testing.assert_allclose(distribution_of(SQUASHED).log_prob(p, far), expected, rtol=1e-6)
    parameters = torch.from_numpy(p).requires_grad_()
    policy = torch_distribution_of(SQUASHED)(parameters)
    log_prob = policy.log_prob(torch.from_numpy(far))
    np.testing.assert_allclose(log_prob.detach(), expected, rtol=1e-6)
    (log_prob + policy.entropy()).sum().backward()
    assert torch.isfinite(parameters.grad).all()


@pytest.mark.parametrize("size", [30.0, 1e30])
def test_extreme_deviations_stay_in_a_range_that_they_can_leave_again(size: float) -> None:
    p = np.array([[0.5, 0.5, size, -size]], np.float32)
    actions, log_prob = distribution_of(BOX).sample(p, np.random.default_rng(6))
    assert np.isfinite(actions).all() and np.isfinite(log_prob).all()
    assert abs(actions[0, 1] - 0.5) < 1e-3
    parameters = torch.from_numpy(p).requires_grad_()
    torch_distribution_of(BOX)(parameters).entropy().sum().backward()
    np.testing.assert_array_equal(parameters.grad, [[0.0, 0.0, 1.0, 1.0]])


@pytest.mark.parametrize("spec", ALL, ids=str)
def test_samples_have_the_recorded_probability_and_the_moments_of_the_parameters(
    spec: ActionSpec,
) -> None:
    distribution, draws = distribution_of(spec), 20_000
    row = _some(spec, 1, 7)
    parameters = np.tile(row, (draws, 1))
    actions, log_prob = distribution.sample(parameters, np.random.default_rng(8))
    assert actions.shape == (draws, *spec.shape) and actions.dtype == spec.dtype
    assert log_prob.shape == (draws,) and log_prob.dtype == np.float32
    assert spec.contains(actions).all()
    np.testing.assert_allclose(distribution.log_prob(parameters, actions), log_prob, rtol=1e-5)
    # E[−log p] is the entropy, whatever the distribution
    spread = 4 * float(log_prob.std()) / math.sqrt(draws)
    assert -log_prob.mean() == pytest.approx(distribution.entropy(row)[0], abs=spread + 0.01)
    if spec.counts:
        for taken, p in _joint(row[0]).items():
            often = (actions[:, :3] == taken).all(1).mean()
            assert often == pytest.approx(p, abs=4.5 * math.sqrt(p * (1 - p) / draws))
    if spec.numbers:
        means, log_stds = np.split(row[0, spec.mask_width :].astype(float), 2)
        for i, (mean, std) in enumerate(zip(means, np.exp(log_stds), strict=True)):
            numbers = actions[:, len(spec.counts) + i]
            assert numbers.mean() == pytest.approx(mean, abs=4 * std / math.sqrt(draws))
            assert numbers.std() == pytest.approx(std, rel=0.03)
        np.testing.assert_allclose(distribution.mode(row)[0, -2:], means)


@pytest.mark.parametrize("spec", ALL, ids=str)
def test_the_same_in_torch_over_two_leading_axes(spec: ActionSpec) -> None:
    distribution, family = distribution_of(spec), torch_distribution_of(spec)
    p, q = _some(spec, 12, 9), _some(spec, 12, 10)
    actions, log_prob = distribution.sample(p, np.random.default_rng(11))
    of_p, of_q = (family(torch.from_numpy(x).view(3, 4, -1)) for x in (p, q))
    taken = torch.from_numpy(actions).view(3, 4, *spec.shape)
    taken = taken if spec.numbers else taken.long()
    for found, expected in (
        (of_p.log_prob(taken), log_prob),
        (of_p.entropy(), distribution.entropy(p)),
        (of_p.kl(of_q), distribution.kl(p, q)),
    ):
        np.testing.assert_allclose(found, expected.reshape(3, 4), rtol=1e-3, atol=1e-4)
    assert distribution.same_mode(p, p).all()
    assert not distribution.same_mode(p, q).any()


@pytest.mark.parametrize("spec", [MULTI, MIXED], ids=str)
def test_a_masked_choice_is_never_taken_and_has_no_gradient(spec: ActionSpec) -> None:
    distribution, family = distribution_of(spec), torch_distribution_of(spec)
    rng = np.random.default_rng(12)
    parameters = _some(spec, 5_000, 13)
    mask = rng.random((5_000, 9)) < 0.4
    mask[:, [0, 4, 8]] = True
    masked = distribution.with_min_action_prob(distribution.mask(parameters, mask), 0.05)
    actions, log_prob = distribution.sample(masked, rng)
    for chosen in (actions, distribution.mode(masked)):
        for i, start in enumerate((0, 3, 5)):
            assert mask[np.arange(5_000), start + chosen[:, i].astype(int)].all()
    assert np.isfinite(log_prob).all()
    assert np.isfinite(distribution.entropy(masked)).all()
    tensor = torch.from_numpy(parameters).requires_grad_()
    policy = family(tensor, torch.from_numpy(mask))
    taken = torch.from_numpy(actions)
    (policy.entropy() + policy.log_prob(taken if spec.numbers else taken.long())).sum().backward()
    assert torch.isfinite(tensor.grad).all()
    np.testing.assert_array_equal(tensor.grad.numpy()[:, :9][~mask], 0.0)
    assert (tensor.grad.numpy()[:, :9][mask] != 0.0).mean() > 0.5


def test_each_choice_needs_something_that_it_may_take() -> None:
    mask = np.ones((1, 9), np.bool_)
    mask[0, 3:5] = False
    for spec in (MULTI, MIXED):
        with pytest.raises(ValueError, match=r"mask: expected \[1, 2\], with a possible action"):
            distribution_of(spec).mask(_some(spec, 1, 0), mask)
        with pytest.raises(ValueError, match=r"mask: expected \[1, 9\], .* got \[1, 4\]"):
            distribution_of(spec).mask(_some(spec, 1, 0), mask[:, :4])
    with pytest.raises(ValueError, match="Box actions have none"):
        distribution_of(BOX).mask(_some(BOX, 1, 0), mask)


def test_the_least_probability_is_of_what_a_mask_allows_and_leaves_the_rest_to_the_policy() -> None:
    # far more probable where it is forbidden, so that a mixture before the mask would be uniform
    logits = np.array([[20, 1, 0, 0, 20, 3, 0, 20, 20]], np.float32)
    mask = np.array([[0, 1, 1, 1, 0, 1, 1, 0, 0]], np.bool_)
    distribution = distribution_of(MULTI)
    kept = distribution.with_min_action_prob(distribution.mask(logits, mask), 0.01)
    p = [np.exp(row) / np.exp(row).sum() for row in np.split(kept[0], [3, 5])]
    e, cube = math.e, math.e**3
    expected = [
        [0, 0.98 * e / (1 + e) + 0.01, 0.98 / (1 + e) + 0.01],
        [1, 0],
        [0.98 * cube / (1 + cube) + 0.01, 0.98 / (1 + cube) + 0.01, 0, 0],
    ]
    for found, wanted in zip(p, expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert distribution.kl(distribution.mask(logits, mask), kept)[0] < 0.01
    # numbers stay as they are
    mixed = np.hstack([logits, np.float32([[1, 2, 3, 4]])])
    of_mixed = distribution_of(MIXED)
    found = of_mixed.with_min_action_prob(of_mixed.mask(mixed, mask), 0.01)
    np.testing.assert_array_equal(found, np.hstack([kept, mixed[:, 9:]]))
