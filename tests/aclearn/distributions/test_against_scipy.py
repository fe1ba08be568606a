"""Log-probabilities and entropies against those of scipy.stats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from aclearn.distributions import distribution_of, torch_distribution_of
from aclearn.types import ActionSpec
from aclearn.types.action_spec import ActionPart

stats = pytest.importorskip("scipy.stats")
ROWS = 20


def categorical(p: Any) -> list[Any]:
    weights = np.exp(p)
    return [stats.rv_discrete(values=(np.arange(5), weights / weights.sum()))]


def bernoulli(p: Any) -> list[Any]:
    return [stats.bernoulli(1 / (1 + np.exp(off - on))) for off, on in p.reshape(2, 2)]


def normal(p: Any) -> list[Any]:
    return [stats.norm(mean, np.exp(log_std)) for mean, log_std in p.reshape(2, 2).T]


SWITCHES = ActionSpec.of((ActionPart(shape=(2,), counts=(2, 2), starts=(0, 0)),))
NUMBERS = ActionSpec.of((ActionPart(shape=(2,), low=(-1.0,) * 2, high=(1.0,) * 2),))


@pytest.mark.parametrize(
    ("spec", "of_scipy"),
    [(ActionSpec.discrete(5), categorical), (SWITCHES, bernoulli), (NUMBERS, normal)],
    ids=["categorical", "bernoulli", "normal"],
)
def test_log_probability_and_entropy_are_those_of_scipy(spec, of_scipy) -> None:
    distribution, rng = distribution_of(spec), np.random.default_rng(0)
    parameters = rng.normal(0, 0.8, (ROWS, distribution.parameter_count)).astype(np.float32)
    actions, _ = distribution.sample(parameters, rng)
    logs, entropies = np.zeros((2, ROWS))
    for b in range(ROWS):
        for one, taken in zip(
            of_scipy(parameters[b].astype(np.float64)), np.atleast_1d(actions[b]), strict=True
        ):
            logs[b] += one.logpdf(taken) if spec.numbers else one.logpmf(taken)
            entropies[b] += one.entropy()
    in_torch = torch_distribution_of(spec)(torch.from_numpy(parameters))
    chosen = torch.from_numpy(actions if spec.numbers else actions.astype(np.int64))
    for found in (distribution.log_prob(parameters, actions), in_torch.log_prob(chosen)):
        np.testing.assert_allclose(found, logs, rtol=1e-4, atol=1e-5)
    for found in (distribution.entropy(parameters), in_torch.entropy()):
        np.testing.assert_allclose(found, entropies, rtol=1e-4, atol=1e-5)
