"""Properties of V-trace for all inputs, invalid inputs, and inputs that it must not read."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from correctors import vtrace

NAN = float("nan")


def assert_same(results, expected) -> None:
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result.numpy(), wanted.numpy())


PI, MU, REWARD, GAMMA = (0.8, 0.2), (0.3, 0.7), (1.0, -1.0), 0.9


@pytest.mark.parametrize(
    ("rho_bar", "value"), [(0.5, -1.428571), (1.0, 2.0), (2.0, 5.0), (10.0, 6.0)]
)
def test_values_settle_at_the_value_of_the_policy_that_rho_bar_chooses(rho_bar, value) -> None:
    """One state, two actions: π_ρ̄ ∝ min(ρ̄ μ, π). All action sequences of three steps, weighted
    by their probability under μ, give the expected target exactly."""
    chosen = np.minimum(rho_bar * np.asarray(MU), PI)
    assert chosen @ REWARD / chosen.sum() / (1 - GAMMA) == pytest.approx(value, abs=1e-6)
    sequences = np.array(list(itertools.product((0, 1), repeat=3))).T  # [T=3, B=8]
    probability = torch.tensor(np.asarray(MU)[sequences].prod(axis=0), dtype=torch.float32)
    ratios = (np.asarray(PI) / np.asarray(MU))[sequences]
    fixed = {
        "rewards": torch.tensor(np.asarray(REWARD)[sequences], dtype=torch.float32),
        "discounts": torch.full((3, 8), GAMMA),
        "done": torch.zeros(3, 8, dtype=torch.bool),
        "log_rhos": torch.tensor(np.log(ratios), dtype=torch.float32),
    }
    estimate = torch.zeros(())

    for _ in range(500):  # the slowest case shrinks the error by 0.95 each time
        values = estimate.expand(3, 8)
        targets, _ = vtrace(values=values, next_values=values, rho_bar=rho_bar, **fixed)
        estimate = (probability * targets[0]).sum()

    assert estimate.item() == pytest.approx(value, abs=1e-4)


def test_no_gradient_flows_through_targets_or_advantages(random_trace) -> None:
    trace = random_trace(4, 3)
    learned = ("values", "next_values", "log_rhos")
    inputs = trace | {name: trace[name].clone().requires_grad_() for name in learned}

    targets, advantages = vtrace(**inputs)
    loss = ((targets - inputs["values"]) ** 2 + advantages * inputs["log_rhos"]).sum()
    loss.backward()

    assert not targets.requires_grad
    assert not advantages.requires_grad
    assert_same([inputs[name].detach() for name in trace], trace.values())  # as they were
    assert_same([inputs["values"].grad], [-2 * (targets - trace["values"])])
    assert_same([inputs["log_rhos"].grad], [advantages])
    assert inputs["next_values"].grad is None


@pytest.mark.parametrize("unread", [NAN, math.inf, 1e30])
@pytest.mark.parametrize("lambda_", [1.0, 0.6])
def test_the_value_after_a_terminated_step_is_never_read(random_trace, unread, lambda_) -> None:
    trace = random_trace(8, 5)
    terminated = trace["discounts"] == 0
    assert terminated.any()
    other = trace | {"next_values": trace["next_values"].masked_fill(terminated, unread)}

    assert_same(vtrace(**other, lambda_=lambda_), vtrace(**trace, lambda_=lambda_))


@pytest.mark.parametrize("discount_of_the_end", [0.0, 0.95], ids=["terminated", "truncated"])
@pytest.mark.parametrize("lambda_", [1.0, 0.0, 0.6])
def test_the_reset_step_after_an_end_affects_no_other_step(
    random_trace, discount_of_the_end, lambda_
) -> None:
    trace = random_trace(9, 3)
    trace["done"][3] = True
    trace["discounts"][3] = discount_of_the_end
    others = torch.tensor([0, 1, 2, 3, 5, 6, 7, 8])
    masked = {name: tensor.clone() for name, tensor in trace.items()}
    for name in ("values", "next_values", "rewards", "discounts", "log_rhos"):
        masked[name][4] = NAN

    results = vtrace(**masked, lambda_=lambda_)

    expected = vtrace(**trace, lambda_=lambda_)
    assert_same([result[others] for result in results], [wanted[others] for wanted in expected])
    assert results.targets[4].isnan().all()


def test_extreme_log_ratios_neither_overflow_nor_become_nan(random_trace) -> None:
    trace = random_trace(3, 4)
    trace["log_rhos"] = torch.tensor([[-math.inf], [math.inf], [1e4]]).repeat(1, 4)

    clipped = vtrace(**trace)
    unclipped = vtrace(**trace, rho_bar=None, c_bar=None, pg_rho_bar=None)

    for result in (*clipped, *unclipped):
        assert result.isfinite().all()
    assert_same([clipped.targets[0], clipped.advantages[0]], [trace["values"][0], torch.zeros(4)])
    sure = vtrace(**trace | {"log_rhos": torch.tensor([[-1e4], [0.0], [0.0]]).repeat(1, 4)})
    assert_same(clipped, sure)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"values": torch.zeros(0, 3)},
            r"values: expected a tensor of shape \[T, B\] with T >= 1 and B >= 1, "
            r"got float32 of shape \(0, 3\) on cpu",
        ),
        ({"values": torch.zeros(4)}, r"values: .*got float32 of shape \(4,\)"),
        ({"values": [[0.0]]}, r"values: .*got list"),
        (
            {"rewards": torch.zeros(3, 4)},
            r"rewards: expected float32 of shape \(4, 3\) on cpu \(as values\), "
            r"got float32 of shape \(3, 4\) on cpu",
        ),
        ({"next_values": torch.zeros(5, 3)}, r"next_values: .*got float32 of shape \(5, 3\)"),
        ({"values": torch.zeros(4, 3).bfloat16()}, r"values: expected float32 .*got bfloat16"),
        ({"done": torch.zeros(4, 3)}, r"done: expected bool .*got float32"),
        ({"discounts": torch.zeros(4, 3, device="meta")}, r"discounts: .* on cpu .* on meta"),
        ({"rho_bar": 0.0}, r"rho_bar: expected a positive number, or None .*got 0.0"),
        ({"c_bar": -1.0}, r"c_bar: .*got -1.0"),
        ({"pg_rho_bar": NAN}, r"pg_rho_bar: .*got nan"),
        ({"lambda_": 1.1}, r"lambda_: expected a number from 0 to 1, got 1.1"),
        ({"lambda_": NAN}, r"lambda_: .*got nan"),
        ({"alpha": -0.1}, r"alpha: expected a number from 0 to 1, got -0.1"),
    ],
)
def test_wrong_arguments_are_refused_by_name_with_expected_and_got(
    random_trace, change, message
) -> None:
    with pytest.raises(ValueError, match=message):
        vtrace(**random_trace(4, 3) | change)
