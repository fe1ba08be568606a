"""V-trace against the formula written as a double sum, and against golden values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from correctors import importance_weights, vtrace


def tensor(rows, dtype=torch.float32):
    return torch.tensor(np.asarray(rows).tolist(), dtype=dtype)


def oracle(
    *,
    values,
    next_values,
    rewards,
    discounts,
    done,
    log_rhos,
    rho_bar,
    c_bar,
    pg_rho_bar,
    lambda_,
    alpha=1.0,
):
    """The definition, term by term in float64: for each s a sum over the t of its own episode."""
    v, v_next, r, gamma, log_rho = (
        np.asarray(x, dtype=np.float64) for x in (values, next_values, rewards, discounts, log_rhos)
    )
    done = np.asarray(done)
    rho = np.exp(log_rho)
    rho_v, c, rho_pg = (
        rho if bar is None else leak * np.minimum(bar, rho) + (1 - leak) * rho
        for bar, leak in ((rho_bar, alpha), (c_bar, alpha), (pg_rho_bar, 1.0))
    )
    time, batch = v.shape
    targets, advantages = v.copy(), np.zeros_like(v)
    for b in range(batch):
        for s in range(time):
            for t in range(s, time):
                product = math.prod(gamma[i, b] * lambda_ * c[i, b] for i in range(s, t))
                delta = r[t, b] + gamma[t, b] * v_next[t, b] - v[t, b]
                targets[s, b] += product * rho_v[t, b] * delta
                if done[t, b]:
                    break
        for s in range(time):
            bootstrap = v_next[s, b]
            if s + 1 < time and not done[s, b]:
                bootstrap = lambda_ * targets[s + 1, b] + (1 - lambda_) * v_next[s, b]
            advantages[s, b] = rho_pg[s, b] * (r[s, b] + gamma[s, b] * bootstrap - v[s, b])
    return targets, advantages


def assert_equals_oracle(trace, **options):
    expected = oracle(**trace, **options)
    for result, wanted in zip(vtrace(**trace, **options), expected, strict=True):
        scale = max(1.0, float(np.abs(wanted).max()))
        assert result.dtype == torch.float32
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5, atol=1e-5 * scale)


bars = st.sampled_from([None, 0.5, 1.0, 2.2, 3.7])


@settings(max_examples=60, deadline=None)
@given(
    time=st.sampled_from([*range(1, 13), 100]),
    batch=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
    rho_bar=bars,
    c_bar=bars,
    pg_rho_bar=bars,
    lambda_=st.sampled_from([0.0, 0.4, 0.9, 1.0]),
    alpha=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_vtrace_equals_the_papers_double_sum_with_any_ends(
    time, batch, seed, rho_bar, c_bar, pg_rho_bar, lambda_, alpha
):
    rng = np.random.default_rng(seed)
    terminated = rng.random((time, batch)) < rng.choice([0.0, 0.2])
    done = terminated | (rng.random((time, batch)) < rng.choice([0.0, 0.2]))
    trace = {
        "values": tensor(rng.normal(size=(time, batch))),
        "next_values": tensor(rng.normal(size=(time, batch))),
        "rewards": tensor(rng.normal(size=(time, batch))),
        "discounts": tensor(rng.uniform(0.5, 1.0, size=(time, batch)) * ~terminated),
        "done": tensor(done, torch.bool),
        "log_rhos": tensor(rng.uniform(-2.5, 2.5, size=(time, batch))),
    }
    assert_equals_oracle(
        trace, rho_bar=rho_bar, c_bar=c_bar, pg_rho_bar=pg_rho_bar, lambda_=lambda_, alpha=alpha
    )


def test_vtrace_equals_rlax(golden) -> None:
    names = ("values", "next_values", "rewards", "discounts", "log_rhos")
    options = ("rho_bar", "c_bar", "pg_rho_bar", "lambda_")

    targets, advantages = vtrace(
        **{name: tensor(golden[name]) for name in names},
        done=tensor(golden["done"], torch.bool),
        **{name: float(golden[name]) for name in options},
    )

    for result, name in ((targets, "vtrace_vs"), (advantages, "vtrace_pg_advantages")):
        np.testing.assert_allclose(result.numpy(), golden[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("lambda_", "expected_targets", "expected_advantages"),
    [
        (1.0, [3.025, 2.25, 2.975, 2.75, -1.4], [2.525, 1.25, 4.975, -0.25, -1.65]),
        (0.8, [2.8, 2.25, 3.02, 2.75, -1.4], [2.3, 1.25, 5.02, -0.25, -1.65]),
    ],
)
def test_a_truncated_step_bootstraps_from_the_observation_it_really_reached(
    lambda_: float, expected_targets: list, expected_advantages: list
) -> None:
    """Step 1 is truncated, step 3 terminated; bootstrapping step 1 from its successor's target,
    which belongs to the next episode, would give an advantage of 0.33875 instead of 1.25."""
    column = torch.tensor([[2.0], [0.5], [1.5], [0.25], [1.0]])

    targets, advantages = vtrace(
        values=torch.tensor([[0.5], [1.0], [-2.0], [3.0], [0.25]]),
        next_values=torch.tensor([[1.0], [5.0], [3.0], [7.0], [-1.0]]),
        rewards=torch.tensor([[1.0], [-1.0], [0.5], [2.0], [-0.5]]),
        discounts=torch.tensor([[0.9], [0.9], [0.9], [0.0], [0.9]]),
        done=torch.tensor([[False], [True], [False], [True], [False]]),
        log_rhos=column.log(),
        lambda_=lambda_,
    )

    np.testing.assert_allclose(targets[:, 0].numpy(), expected_targets, rtol=1e-6)
    np.testing.assert_allclose(advantages[:, 0].numpy(), expected_advantages, rtol=1e-6)


RATIOS = torch.tensor([[0.25, 2.0, 1.0], [4.0, 0.5, 1.0]])


@pytest.mark.parametrize(
    ("rho_bar", "expected"),
    [
        (1.0, [[0.25, 1.0, 1.0], [1.0, 0.5, 1.0]]),
        (2.0, [[0.25, 2.0, 1.0], [2.0, 0.5, 1.0]]),
        (None, [[0.25, 2.0, 1.0], [4.0, 0.5, 1.0]]),
    ],
)
def test_weights_are_the_ratios_clipped_from_above_only(rho_bar, expected) -> None:
    weights = importance_weights(RATIOS.log(), rho_bar=rho_bar)
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"log_rhos: .*got float16"):
        importance_weights(RATIOS.half())
    with pytest.raises(ValueError, match=r"rho_bar: .*got 0.0"):
        importance_weights(RATIOS, rho_bar=0.0)
