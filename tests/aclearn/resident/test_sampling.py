"""Sampling on the device: frequencies, and log-probabilities as the learner computes them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aclearn.distributions import distribution_of, torch_distribution_of
from aclearn.types import ActionSpec
from aclearn.types.action_spec import ActionPart

ActionSampler = pytest.importorskip("aclearn.resident").ActionSampler

_CHOICES = ActionPart(shape=(2,), counts=(3, 5), starts=(0, 1))
_NUMBERS = ActionPart(shape=(2,), low=(-1.0, 0.0), high=(1.0, 4.0), dtype="float32")
_SPECS = {
    "discrete": ActionSpec.discrete(5),
    "choices": ActionSpec.of((_CHOICES,)),
    "numbers": ActionSpec.of((_NUMBERS,)),
    "squashed": ActionSpec.of((_NUMBERS,), squash=True),
    "both": ActionSpec.of((_NUMBERS, _CHOICES)),
}
_ENVS = 3000


@pytest.mark.parametrize("name", _SPECS)
def test_a_sample_has_the_learners_log_probability_and_the_right_frequencies(name: str) -> None:
    spec = _SPECS[name]
    count = distribution_of(spec).parameter_count
    sampler = ActionSampler(spec, envs=_ENVS, device=torch.device("cpu"), seed=3)
    row = torch.linspace(-0.8, 0.9, count)
    sampler.parameters[:] = row
    taken = []
    for step in range(10):
        actions, log_probs = sampler.sample(step)
        expected = torch_distribution_of(spec)(sampler.parameters).log_prob(actions)
        torch.testing.assert_close(log_probs, expected, atol=2e-5, rtol=1e-5)
        taken.append(actions.clone().reshape(_ENVS, -1))
    drawn = torch.cat(taken).double().numpy()

    logits = np.split(row[: spec.mask_width].double().numpy(), np.cumsum(spec.counts)[:-1])
    for column, of_choice in enumerate(logits if spec.counts else ()):
        probs = np.exp(of_choice) / np.exp(of_choice).sum()
        observed = np.bincount(drawn[:, column].astype(int), minlength=len(probs))
        chi_square = ((observed - len(drawn) * probs) ** 2 / (len(drawn) * probs)).sum()
        assert chi_square < 18.47  # the 99.9 % quantile of 4 degrees of freedom
    means, log_stds = row[spec.mask_width :].double().numpy().reshape(2, -1)
    for n in range(spec.numbers):
        z = (drawn[:, len(spec.counts) + n] - means[n]) / math.exp(log_stds[n])
        error = 4 / math.sqrt(len(z))
        assert abs(z.mean()) < error
        assert abs(z.var() - 1.0) < error * math.sqrt(2)
        assert abs((z < 1.0).mean() - 0.841345) < error


def test_an_impossible_choice_is_never_taken() -> None:
    sampler = ActionSampler(ActionSpec.discrete(3), envs=2000, device=torch.device("cpu"))
    sampler.parameters[:] = torch.tensor([-1e9, 0.0, -1e9])
    for step in range(20):
        actions, log_probs = sampler.sample(step)
        assert (actions == 1).all()
        assert (log_probs == 0.0).all()
