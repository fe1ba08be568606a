"""The corrector chain: each link's effect, and invalid chains."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import correctors
from correctors import (
    CorrectionInput,
    CorrectorChain,
    ImportanceSampling,
    VTrace,
    importance_weights,
    vtrace,
)


def assert_equal(result, expected) -> None:
    np.testing.assert_array_equal(result.numpy(), expected.numpy())


def test_both_default_correctors_together_are_vtrace(random_trace) -> None:
    trace = random_trace(9, 4)
    chain = (
        CorrectorChain()
        .add(VTrace(rho_bar=1.5, c_bar=0.9, lambda_=0.8))
        .add(ImportanceSampling(rho_bar=2.0))
    )

    correction = chain.correct(CorrectionInput(**trace))

    expected = vtrace(**trace, rho_bar=1.5, c_bar=0.9, pg_rho_bar=2.0, lambda_=0.8)
    assert_equal(correction.targets, expected.targets)
    assert_equal(correction.weighted_advantages, expected.advantages)
    assert_equal(correction.weights, importance_weights(trace["log_rhos"], rho_bar=2.0))


def test_an_empty_chain_gives_one_step_differences_without_log_rhos(random_trace) -> None:
    trace = random_trace(5, 3)
    expected = trace["rewards"] + trace["discounts"] * trace["next_values"]
    trace["next_values"][trace["discounts"] == 0] = float("nan")
    del trace["log_rhos"]

    correction = CorrectorChain().correct(CorrectionInput(**trace))

    assert_equal(correction.targets, expected)
    assert_equal(correction.advantages, expected - trace["values"])
    assert_equal(correction.weights, torch.ones(5, 3))


@pytest.mark.parametrize("name", ["rho", "c"])
@pytest.mark.parametrize(("bar", "above"), [(1.0, 2), (3.0, 1), (None, 0)])
def test_vtrace_reports_which_ratios_are_above_its_bars(random_trace, bar, above, name) -> None:
    ratios = torch.tensor([[0.25, 0.5, 1.0], [4.0, 0.5, 2.0]])
    batch = CorrectionInput(**random_trace(2, 3) | {"log_rhos": ratios.log()})
    bars = {"rho_bar": 3.5, "c_bar": 3.5, f"{name}_bar": bar}  # 3.5: only the 4 is above

    correction = CorrectorChain().add(VTrace(**bars)).correct(batch)

    clipped = correction.metrics[f"clipped_{name}_share"]
    expected = ratios > (np.inf if bar is None else bar)
    assert_equal(clipped, expected.float())
    assert int(clipped.sum()) == above


def test_the_correction_of_some_environments_is_that_part_of_the_whole(random_trace) -> None:
    batch = CorrectionInput(**random_trace(4, 3))
    whole = replace(
        CorrectorChain().add(VTrace()).add(ImportanceSampling()).correct(batch), advantage_scale=0.5
    )

    part = whole.columns(slice(1, 3))

    for name in ("targets", "advantages", "weights", "weighted_advantages"):
        assert_equal(getattr(part, name), getattr(whole, name)[:, 1:])
    assert_equal(part.metrics["clipped_rho_share"], whole.metrics["clipped_rho_share"][:, 1:])
    assert_equal(part.weighted_advantages, part.weights * part.advantages * 0.5)


def test_a_chain_needs_what_its_correctors_need() -> None:
    assert CorrectorChain().needs == frozenset()
    shorter = CorrectorChain().add(ImportanceSampling())
    assert shorter.needs == {"log_rhos"}
    assert shorter.add(VTrace()).needs == {
        "values", "next_values", "rewards", "discounts", "done", "log_rhos",
    }  # fmt: skip
    assert shorter.correctors == (ImportanceSampling(),)


def test_a_batch_without_what_a_corrector_needs_is_refused(random_trace) -> None:
    batch = replace(CorrectionInput(**random_trace(4, 3)), log_rhos=None)
    with pytest.raises(ValueError, match=r"log_rhos: needed by a corrector"):
        CorrectorChain().add(VTrace()).correct(batch)


def test_a_corrector_that_needs_what_no_batch_has_is_refused_when_added() -> None:
    @dataclass(frozen=True)
    class NeedsActionValues:
        needs = frozenset({"action_values", "rewards"})

        def correct(self, batch, correction):
            return correction

    with pytest.raises(ValueError, match=r"NeedsActionValues: .*got \['action_values'\]"):
        CorrectorChain().add(NeedsActionValues())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": torch.zeros(0, 3)}, r"values: .*got float32 of shape \(0, 3\)"),
        ({"done": torch.zeros(4, 3)}, r"done: expected bool .*got float32"),
        ({"log_rhos": torch.zeros(3, 4)}, r"log_rhos: .*got float32 of shape \(3, 4\)"),
        ({"values": None}, "values: expected a tensor"),
        (
            {"behaviour_parameters": torch.zeros(4, 3)},
            r"_parameters: .*\(4, 3, A\).*\(4, 3\)",
        ),
        (
            {"behaviour_parameters": torch.zeros(3, 4, 2)},
            r"_parameters: .*\(4, 3, 2\).*\(3, 4",
        ),
    ],
)
def test_a_malformed_batch_is_refused_by_name(random_trace, change, message) -> None:
    with pytest.raises(ValueError, match=message):
        CorrectionInput(**random_trace(4, 3) | change)


def test_every_public_name_can_be_imported() -> None:
    assert sorted(correctors.__all__) == correctors.__all__
    assert all(hasattr(correctors, name) for name in correctors.__all__)
