"""The links beside V-trace: no correction, GA3C's epsilon, and the KL filter."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from correctors import (
    CorrectionInput,
    CorrectorChain,
    EpsilonCorrection,
    ImportanceSampling,
    KLFilter,
    NoCorrection,
    QImportanceSampling,
    QLambda,
    Retrace,
    TreeBackup,
    VTrace,
    importance_sampling,
    q_lambda,
    retrace,
    tree_backup,
    vtrace,
)

NAN = float("nan")


def corrected(links, trace):
    chain = CorrectorChain()
    for link in links:
        chain = chain.add(link)
    return chain.correct(CorrectionInput(**trace))


def assert_equal(result, expected) -> None:
    np.testing.assert_array_equal(result.numpy(), expected.numpy())


@pytest.mark.parametrize("lambda_", [1.0, 0.6])
def test_no_correction_is_vtrace_on_policy_whatever_the_ratios(random_trace, lambda_) -> None:
    trace = random_trace(9, 4)
    on_policy = trace | {"log_rhos": torch.zeros(9, 4)}
    del trace["log_rhos"]

    correction = corrected([NoCorrection(lambda_)], trace)

    expected = vtrace(**on_policy, lambda_=lambda_)
    assert_equal(correction.targets, expected.targets)
    assert_equal(correction.advantages, expected.advantages)
    assert_equal(correction.weights, torch.ones(9, 4))


def test_without_correction_the_errors_are_generalised_advantages(random_trace) -> None:
    """Schulman et al. 2016, eq. 16: Σ_l (γλ)^l δ_t+l over the steps of the episode."""
    trace = random_trace(9, 4)
    del trace["log_rhos"]
    array = {name: tensor.double().numpy() for name, tensor in trace.items()}
    deltas = array["rewards"] + array["discounts"] * array["next_values"] - array["values"]
    expected = np.zeros((9, 4))
    for t, b in itertools.product(range(9), range(4)):
        weight = 1.0
        for u in range(t, 9):
            expected[t, b] += weight * deltas[u, b]
            weight *= 0.7 * array["discounts"][u, b]
            if trace["done"][u, b]:
                break

    targets = corrected([NoCorrection(0.7)], trace).targets

    np.testing.assert_allclose(targets - trace["values"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("form", "epsilon", "objective"),
    [
        ("add", 0.02, lambda p: (p + 0.02).log()),
        ("max", 1e-3, lambda p: p.clamp(min=1e-3).log()),  # one is above it and one below
    ],
)
def test_epsilon_gives_the_gradient_of_its_logarithm(
    random_trace, form, epsilon, objective
) -> None:
    logits = torch.tensor([[[2.0, -3.0]], [[-1.0, -9.0]]], requires_grad=True)
    log_pi = logits.log_softmax(2)[:, :, 1]
    (wanted,) = torch.autograd.grad(objective(log_pi.exp()).sum(), logits, retain_graph=True)

    trace = random_trace(2, 1) | {"log_pi": log_pi}
    weights = corrected([EpsilonCorrection(epsilon, form)], trace).weights

    assert not weights.requires_grad
    (gradient,) = torch.autograd.grad((weights * log_pi).sum(), logits)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5)


def test_epsilon_removes_an_action_that_pi_excludes(random_trace) -> None:
    trace = random_trace(1, 3) | {"log_pi": torch.tensor([[-math.inf, math.log(1e-6), 0.0]])}
    weights = corrected([EpsilonCorrection()], trace).weights
    np.testing.assert_allclose(weights, [[0.0, 0.5, 1.0]], rtol=1e-5, atol=1e-6)


def test_the_filter_keeps_states_up_to_its_bound(random_trace) -> None:
    kl = torch.tensor([[0.0, 0.5, 0.51], [NAN, math.inf, 0.2]])
    trace = random_trace(2, 3) | {"kl": kl}

    correction = corrected([VTrace(), KLFilter(bound=0.5)], trace)

    kept = torch.tensor([[True, True, False], [False, False, True]])
    assert_equal(correction.kept, kept)
    assert_equal(correction.metrics["kl_dropped_share"], (~kept).float())
    assert_equal(correction.targets, corrected([VTrace()], trace).targets)
    assert_equal(correction.columns(slice(1, 3)).kept, kept[:, 1:])
    both = corrected([KLFilter(bound=0.1), KLFilter(bound=0.5)], trace)
    assert_equal(both.kept, kl <= 0.1)


Q_LINKS = {
    Retrace: retrace,
    TreeBackup: tree_backup,
    QLambda: q_lambda,
    QImportanceSampling: importance_sampling,
}


def action_value_batch(random_trace, random_steps):
    """A batch with a Q critic, and the steps that follow from it."""
    trace, steps = random_trace(9, 4), random_steps(9, 4)
    actions = torch.randint(4, (9, 4), generator=torch.Generator().manual_seed(0))
    known = {name: steps[name] for name in ("q_next", "next_target_probs")}
    following = {
        "next_actions": torch.cat([actions[1:], torch.full((1, 4), -1)]),
        "next_log_rhos": torch.cat([trace["log_rhos"][1:], torch.full((1, 4), NAN)]),
    }
    given = {name: trace[name] for name in ("rewards", "discounts", "done")}
    return trace | known | {"actions": actions}, given | known | following


@pytest.mark.parametrize("link", Q_LINKS)
def test_a_link_of_action_values_gives_what_its_function_gives(
    random_trace, random_steps, link
) -> None:
    batch, steps = action_value_batch(random_trace, random_steps)
    if link in (TreeBackup, QLambda):
        del steps["next_log_rhos"]
        batch["log_rhos"] = None

    correction = corrected([link(lambda_=0.8)], batch)

    expected = Q_LINKS[link](**steps, lambda_=0.8)
    assert_equal(correction.targets, expected)
    assert_equal(correction.advantages, expected - batch["values"])
    assert_equal(correction.weights, torch.ones(9, 4))


@pytest.mark.parametrize("link", Q_LINKS)
def test_without_action_values_such_a_link_is_refused(random_trace, link) -> None:
    with pytest.raises(ValueError, match=r"^actions: needed by a corrector of the chain"):
        corrected([link()], random_trace(3, 2))


@pytest.mark.parametrize("link", [VTrace(lambda_=0.8), NoCorrection(0.8)])
def test_with_a_q_critic_the_target_is_the_return_of_the_action_taken(
    random_trace, random_steps, link
) -> None:
    batch, _ = action_value_batch(random_trace, random_steps)

    correction = corrected([link], batch)

    of_v = corrected([link], batch | {"q_next": None, "next_target_probs": None})
    assert_equal(correction.advantages, of_v.advantages)
    np.testing.assert_allclose(
        correction.targets, batch["values"] + of_v.advantages, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EpsilonCorrection(-1e-6), r"epsilon: expected a positive number, got -1e-06"),
        (lambda: EpsilonCorrection(0.0), r"epsilon: .*got 0.0"),
        (lambda: EpsilonCorrection(form="most"), r"form: expected add or max, got 'most'"),
        (lambda: EpsilonCorrection(NAN), r"epsilon: .*got nan"),
        (lambda: KLFilter(-0.5), r"bound: expected a positive number, got -0.5"),
        (lambda: NoCorrection(1.5), r"lambda_: .*got 1.5"),
        (lambda: Retrace(lambda_=-0.1), r"lambda_: .*got -0.1"),
        (lambda: VTrace(rho_bar=0.0), r"rho_bar: .*got 0.0"),
        (lambda: VTrace(c_bar=-2.0), r"c_bar: .*got -2.0"),
        (lambda: VTrace(lambda_=-0.1), r"lambda_: .*got -0.1"),
        (lambda: ImportanceSampling(rho_bar=0.0), r"rho_bar: .*got 0.0"),
    ],
)
def test_bad_parameters_are_refused(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()
