"""`check_corrector` passes every corrector of ours and names what a broken one breaks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from correctors import (
    EpsilonCorrection,
    ImportanceSampling,
    KLFilter,
    NoCorrection,
    NStep,
    QImportanceSampling,
    QLambda,
    Retrace,
    TreeBackup,
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
        ConstantTargets(3.0),
    ],
    ids=lambda corrector: type(corrector).__name__,
)
def test_correctors_that_keep_the_contract_pass(corrector) -> None:
    check_corrector(corrector)


@dataclass(frozen=True)
class Own:
    needs = frozenset({"log_rhos"})

    def correct(self, batch, correction):
        with torch.no_grad():
            return self.changed(batch, correction)

    def changed(self, batch, correction):
        return correction


class NeedsMore(Own):
    needs = frozenset({"log_rhos", "advantage"})


class ReadsMore(Own):
    def changed(self, batch, correction):
        return replace(correction, weights=correction.weights * batch.log_pi.exp())


class OfAnotherShape(Own):
    def changed(self, batch, correction):
        return replace(correction, targets=correction.targets[0])


class ChangesItsInput(Own):
    def changed(self, batch, correction):
        batch.rewards.add_(1.0)
        return correction


class ChangesWhatItWasGiven(Own):
    def changed(self, batch, correction):
        correction.weights.mul_(1.0 - 0.5 * (batch.log_rhos < 0))
        return correction


class CarriesGradient(Own):
    def correct(self, batch, correction):
        return replace(correction, weights=correction.weights * batch.log_rhos.clamp(max=0).exp())


class Random(Own):
    def changed(self, batch, correction):
        return replace(correction, targets=torch.rand_like(batch.rewards))


class ForgetsMetrics(Own):
    def changed(self, batch, correction):
        return replace(correction, metrics={"mine": torch.zeros_like(batch.rewards)})


class MeanAsMetric(Own):
    def changed(self, batch, correction):
        return replace(correction, metrics={**correction.metrics, "mine": batch.rewards.mean()})


class ReplacesWeights(Own):
    def changed(self, batch, correction):
        return replace(correction, weights=batch.log_rhos.clamp(max=0.0).exp())


class NormalisesOverEnvironments(Own):
    def changed(self, batch, correction):
        advantages = correction.advantages
        return replace(correction, advantages=advantages - advantages.mean())


class MultipliesByZero(Own):
    def changed(self, batch, correction):
        targets = batch.rewards + batch.discounts * batch.next_values
        return replace(correction, targets=targets)


class RunsOverEnds(Own):
    def changed(self, batch, correction):
        targets = correction.targets.clone()
        targets[:-1] += 0.5 * correction.targets[1:]
        return replace(correction, targets=targets)


class Overflows(Own):
    def changed(self, batch, correction):
        return replace(correction, weights=correction.weights * batch.log_rhos.exp())


@pytest.mark.parametrize(
    ("corrector", "breach"),
    [
        (object(), "object: expected `needs` and `correct`"),
        (NeedsMore(), r"NeedsMore: expected needs among .* got \['advantage'\]"),
        (ReadsMore(), "ReadsMore: correct raised AttributeError.*may be None"),
        (OfAnotherShape(), r"OfAnotherShape: correct raised ValueError.*targets: expected float32"),
        (ChangesItsInput(), "correct changed rewards of its input in place"),
        (ChangesWhatItWasGiven(), "correct changed weights of the correction that it was given"),
        (CarriesGradient(), "weights carries gradient; use torch.no_grad"),
        (Random(), "two calls with one input gave different targets"),
        (ForgetsMetrics(), "correct dropped the metrics of correctors before it"),
        (MeanAsMetric(), r"metrics\['mine'\]: expected a tensor of shape \(7, 4\)"),
        (ReplacesWeights(), "weights: expected those it was given times its own"),
        (NormalisesOverEnvironments(), "advantages of an environment depend on other environments"),
        (MultipliesByZero(), "targets depend on the next observation of a terminated step"),
        (RunsOverEnds(), "targets depend on the step behind a done one"),
        (Overflows(), "weights: not finite where log_rhos is 10000.0"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_broken_contract_is_named(corrector, breach) -> None:
    with pytest.raises(AssertionError, match=breach):
        check_corrector(corrector)
