"""`check_corrector` passes every corrector of ours and names what a broken one breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch

from correctors import (
    Adaptive,
    Auto,
    Correction,
    EpsilonCorrection,
    ImportanceSampling,
    KLFilter,
    NoCorrection,
    NStep,
    QImportanceSampling,
    QLambda,
    RatioMask,
    Retrace,
    ScaleByESS,
    SecondMoment,
    TreeBackup,
    TVMask,
    UnrollMask,
    VTrace,
    check_corrector,
)
from tests.support.toys.toy_corrector import ConstantTargets


@pytest.mark.parametrize(
    "corrector",
    [
        VTrace(),
        VTrace(rho_bar=None, c_bar=None, lambda_=0.7, alpha=0.5),
        ImportanceSampling(),
        ImportanceSampling(None),
        EpsilonCorrection(),
        KLFilter(0.5),
        NoCorrection(0.9),
        NStep(3),
        Retrace(0.9),
        TreeBackup(),
        QLambda(0.9),
        QImportanceSampling(0.9),
        RatioMask(),
        RatioMask(0.0, None, "drift"),
        TVMask(),
        UnrollMask(0.5, 2.0),
        SecondMoment(0.5),
        SecondMoment(part="gap"),
        ScaleByESS(),
        Adaptive(None),
        Auto(),
        ConstantTargets(3.0),
    ],
    ids=lambda corrector: type(corrector).__name__,
)
def test_correctors_that_keep_the_contract_pass(corrector) -> None:
    check_corrector(corrector)


@dataclass(frozen=True)
class Own:
    """Changes a correction by a function of the batch and the correction."""

    change: Callable[..., Correction]
    needs: frozenset[str] = frozenset({"log_rhos"})

    def correct(self, batch, correction):
        with torch.no_grad():
            return self.change(batch, correction)


class CarriesGradient(Own):
    def correct(self, batch, correction):
        return replace(correction, weights=correction.weights * batch.log_rhos.clamp(max=0).exp())


def times(of_batch):
    return Own(lambda batch, given: replace(given, weights=given.weights * of_batch(batch)))


def with_targets(targets_of):
    return Own(lambda batch, given: replace(given, targets=targets_of(batch, given)))


def with_metrics(metrics_of):
    return Own(lambda batch, given: replace(given, metrics=metrics_of(batch, given)))


def changes_its_input(batch, correction):
    batch.rewards.add_(1.0)
    return correction


def changes_what_it_was_given(batch, correction):
    correction.weights.mul_(1.0 - 0.5 * (batch.log_rhos < 0))
    return correction


def normalises_over_environments(batch, correction):
    advantages = correction.advantages
    return replace(correction, advantages=advantages - advantages.mean())


def runs_over_ends(batch, correction):
    targets = correction.targets.clone()
    targets[:-1] += 0.5 * correction.targets[1:]
    return targets


def same(batch, correction):
    return correction


@pytest.mark.parametrize(
    ("corrector", "breach"),
    [
        (object(), "object: expected `needs` and `correct`"),
        (Own(same, frozenset({"log_rhos", "advantage"})), r"expected needs .* got \['advantage'\]"),
        (times(lambda batch: batch.log_pi.exp()), "Own: correct raised Attribute.*may be None"),
        (
            with_targets(lambda batch, given: given.targets[0]),
            r"Own: correct raised ValueError.*targets: expected float32",
        ),
        (Own(changes_its_input), "correct changed rewards of its input in place"),
        (Own(changes_what_it_was_given), "correct changed weights of the correction that it was"),
        (CarriesGradient(same), "weights carries gradient; use torch.no_grad"),
        (
            with_targets(lambda batch, given: torch.rand_like(batch.rewards)),
            "two calls with one input gave different targets",
        ),
        (
            with_metrics(lambda batch, given: {"mine": torch.zeros_like(batch.rewards)}),
            "correct dropped the metrics of correctors before it",
        ),
        (
            with_metrics(lambda batch, given: {**given.metrics, "mine": batch.rewards.mean()}),
            r"metrics\['mine'\]: expected a tensor of shape \(7, 4\)",
        ),
        (
            Own(lambda batch, given: replace(given, weights=batch.log_rhos.clamp(max=0.0).exp())),
            "weights: expected those it was given times its own",
        ),
        (Own(normalises_over_environments), "advantages of an environment depend on other"),
        (
            with_targets(lambda batch, given: batch.rewards + batch.discounts * batch.next_values),
            "targets depend on the next observation of a terminated step",
        ),
        (with_targets(runs_over_ends), "targets depend on the step behind a done one"),
        (
            times(lambda batch: batch.log_rhos.exp()),
            "weights: not finite where log_rhos is 10000.0",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_contract_is_named(corrector, breach) -> None:
    with pytest.raises(AssertionError, match=breach):
        check_corrector(corrector)
