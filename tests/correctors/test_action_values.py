"""The returns of actions: golden values, their definition as a double sum, and fixed points."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from correctors import importance_sampling, q_lambda, retrace, tree_backup

NAN = float("nan")
#: By name: the function, and its factor of the trace by ρ and π of the next action.
FUNCTIONS = {
    "retrace": (retrace, lambda rho, pi: np.minimum(1.0, rho)),
    "tree_backup": (tree_backup, lambda rho, pi: pi),
    "q_lambda": (q_lambda, lambda rho, pi: np.ones_like(rho)),
    "is": (importance_sampling, lambda rho, pi: rho),
}
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def targets_of(name, steps, lambda_):
    given = dict(steps)
    if name in ("tree_backup", "q_lambda"):
        del given["next_log_rhos"]
    return FUNCTIONS[name][0](**given, lambda_=lambda_)


def taken(values, actions):
    return np.take_along_axis(np.asarray(values), np.asarray(actions)[..., None], -1)[..., 0]


def oracle(name, steps, lambda_):
    """Munos et al. 2016, eq. 4, term by term in float64: for each s a sum over its own episode."""
    s = {key: np.asarray(value, dtype=np.float64) for key, value in steps.items()}
    actions, done = np.asarray(steps["next_actions"]), np.asarray(steps["done"])
    trace = FUNCTIONS[name][1](np.exp(s["next_log_rhos"]), taken(s["next_target_probs"], actions))
    q, gamma = taken(s["q_next"], actions), s["discounts"]
    expected = (s["next_target_probs"] * s["q_next"]).sum(-1)
    one_step = s["rewards"] + gamma * expected
    targets = one_step.copy()
    time, batch = one_step.shape
    for b, start in itertools.product(range(batch), range(time)):
        for t in range(start + 1, time):
            if done[t - 1, b]:
                break
            product = math.prod(gamma[i, b] * lambda_ * trace[i, b] for i in range(start, t))
            targets[start, b] += product * (one_step[t, b] - q[t - 1, b])
    return targets


def assert_same(result, expected) -> None:
    np.testing.assert_array_equal(result.numpy(), expected.numpy())


@each_function
def test_targets_equal_those_of_rlax(golden, name) -> None:
    steps = {
        key: torch.from_numpy(golden[key]).float()
        for key in ("q_next", "next_target_probs", "rewards", "discounts", "next_log_rhos")
    }
    steps["next_actions"] = torch.from_numpy(golden["next_actions"])
    steps["done"] = torch.from_numpy(golden["done"])

    targets = targets_of(name, steps, float(golden["lambda_"]))

    np.testing.assert_allclose(targets, golden[f"{name}_targets"], rtol=1e-5, atol=1e-5)


@each_function
@settings(max_examples=25, deadline=None)
@given(
    time=st.integers(1, 12),
    batch=st.integers(1, 5),
    actions=st.integers(1, 4),
    seed=st.integers(0, 2**16),
    lambda_=st.sampled_from([0.0, 0.4, 0.9, 1.0]),
)
def test_targets_equal_the_papers_double_sum_with_any_ends(
    random_steps, name, time, batch, actions, seed, lambda_
) -> None:
    steps = random_steps(time, batch, actions=actions, seed=seed)

    targets = targets_of(name, steps, lambda_)

    expected = oracle(name, steps, lambda_)
    scale = max(1.0, float(np.abs(expected).max()))
    assert targets.dtype == torch.float32
    np.testing.assert_allclose(targets, expected, rtol=1e-5, atol=1e-5 * scale)


def test_each_trace_carries_its_own_factor_back() -> None:
    """G_1 = 3; G_0 = 1 + 0.5 · (V + c · (3 − 4)) with V = 0.25 · 4 + 0.75 · 8 = 7."""
    steps = {
        "q_next": torch.tensor([[[4.0, 8.0]], [[NAN, NAN]]]),
        "next_actions": torch.tensor([[0], [-7]]),
        "next_target_probs": torch.tensor([[[0.25, 0.75]], [[NAN, NAN]]]),
        "rewards": torch.tensor([[1.0], [3.0]]),
        "discounts": torch.tensor([[0.5], [0.0]]),
        "done": torch.tensor([[False], [True]]),
        "next_log_rhos": torch.tensor([[math.log(2.0)], [NAN]]),
    }
    factors = {"retrace": 1.0, "tree_backup": 0.25, "q_lambda": 1.0, "is": 2.0}
    for name, factor in factors.items():
        targets = targets_of(name, steps, 0.8)
        expected = [[4.5 - 0.5 * 0.8 * factor], [3.0]]
        np.testing.assert_allclose(targets, expected, rtol=1e-6, err_msg=name)


@each_function
def test_unread_entries_do_not_change_the_targets(random_steps, name) -> None:
    steps = random_steps(9, 4)
    assert (steps["discounts"] == 0).any()
    assert (steps["done"] & (steps["discounts"] > 0)).any()
    for key in ("q_next", "next_target_probs", "next_log_rhos"):
        steps[key].requires_grad_()
    before = {key: tensor.detach().clone() for key, tensor in steps.items()}
    other = {key: tensor.detach().clone() for key, tensor in steps.items()}
    for key in ("q_next", "next_target_probs"):
        other[key][steps["discounts"] == 0] = NAN
    unread = steps["done"].clone()
    unread[-1] = True
    other["next_log_rhos"][unread] = NAN
    other["next_actions"][unread] = -(2**40)

    targets = targets_of(name, steps, 0.9)
    assert_same(targets_of(name, other, 0.9), targets)
    assert not targets.requires_grad
    for key, tensor in steps.items():  # inputs stay as they were
        assert_same(tensor.detach(), before[key])


@each_function
@pytest.mark.parametrize("discount_of_the_end", [0.0, 0.95], ids=["terminated", "truncated"])
def test_the_reset_step_after_an_end_affects_no_other_step(
    random_steps, name, discount_of_the_end
) -> None:
    steps = random_steps(9, 3)
    steps["done"][3] = True
    steps["discounts"][3] = discount_of_the_end
    masked = {key: tensor.clone() for key, tensor in steps.items()}
    for key in ("q_next", "next_target_probs", "rewards", "discounts", "next_log_rhos"):
        masked[key][4] = NAN
    others = torch.tensor([0, 1, 2, 3, 5, 6, 7, 8])

    result = targets_of(name, masked, 0.9)

    assert_same(result[others], targets_of(name, steps, 0.9)[others])
    assert result[4].isnan().all()


def test_a_trace_of_one_step_reads_no_action(random_steps) -> None:
    steps = random_steps(1, 3)
    steps["next_actions"].fill_(99)
    steps["next_log_rhos"].fill_(NAN)
    expected = oracle("retrace", random_steps(1, 3), 0.9)
    for name in FUNCTIONS:
        np.testing.assert_allclose(targets_of(name, steps, 0.9), expected, rtol=1e-6)


@each_function
def test_one_overflowing_ratio_stays_finite(random_steps, name) -> None:
    steps = random_steps(3, 2)
    steps["done"].fill_(False)
    steps["next_log_rhos"] = torch.tensor([[1e4, -math.inf], [math.inf, 1e30], [0.0, 0.0]])
    assert targets_of(name, steps, 1.0).isfinite().all()


@each_function
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"discounts": torch.zeros(3, 4)}, r"discounts: expected float32 of shape \(4, 3\)"),
        ({"q_next": torch.zeros(4, 3)}, r"q_next: .*shape \(4, 3, A\).*got .*\(4, 3\)"),
        ({"q_next": torch.zeros(4, 3, 0)}, r"q_next: .*shape \(4, 3, A\).*got .*\(4, 3, 0\)"),
        ({"q_next": torch.zeros(3, 4, 4)}, r"q_next: .*shape \(4, 3, 4\).*got .*\(3, 4, 4\)"),
        ({"next_target_probs": torch.zeros(4, 3, 5)}, r"next_target_probs: .*shape \(4, 3, 4\)"),
        ({"next_actions": torch.zeros(4, 3)}, r"next_actions: expected int64 .*got float32"),
        ({"done": torch.zeros(4, 3)}, r"done: expected bool .*got float32"),
    ],
)
def test_wrong_arguments_are_refused_by_name(random_steps, name, change, message) -> None:
    with pytest.raises(ValueError, match=message):
        targets_of(name, random_steps(4, 3) | change, 0.9)
    with pytest.raises(ValueError, match=r"lambda_: expected a number from 0 to 1, got -0.1"):
        targets_of(name, random_steps(4, 3), -0.1)


@each_function
def test_a_missing_and_an_unexpected_keyword_are_named_with_the_function(
    random_steps, name
) -> None:
    steps = random_steps(4, 3)
    without = {key: value for key, value in steps.items() if key != "rewards"}
    called = FUNCTIONS[name][0].__name__
    with pytest.raises(TypeError) as missing:
        targets_of(name, without, 0.9)
    assert str(missing.value) == f"{called}() misses the keyword argument 'rewards'"
    with pytest.raises(TypeError) as unexpected:
        targets_of(name, steps | {"rho": steps["rewards"]}, 0.9)
    assert str(unexpected.value) == f"{called}() got an unexpected keyword argument 'rho'"
