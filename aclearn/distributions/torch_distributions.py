"""Choices, numbers and both in torch, for learners."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn

from aclearn.distributions.categorical import MASKED
from aclearn.distributions.gaussian import (
    HALF_LOG_2PI,
    LOG_STD_RANGE,
    LOGISTIC_SHARES,
    LOGISTIC_STDS,
)
from aclearn.distributions.torch_categorical import TorchCategorical
from aclearn.types import ActionSpec


class TorchGaussian:
    """Gaussians by means and log standard deviations `[…, 2n]`, in float32.

    A log standard deviation beyond its range counts as the end of the range. Its gradient passes,
    so that it can return.
    """

    def __init__(self, parameters: Tensor, spec: ActionSpec) -> None:
        self._squash = spec.squash
        self._means, log_stds = parameters.float().chunk(2, -1)
        with torch.no_grad():
            excess = log_stds.clamp(*LOG_STD_RANGE) - log_stds
        self._log_stds = log_stds + excess

    @staticmethod
    def mask(parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Unchanged: Box actions have no mask."""
        return parameters

    def sample(self, rng: torch.Generator) -> Tensor:
        """Samples `[…, n]`, through which the gradient reaches the parameters."""
        means = self._means
        normal = torch.randn(means.shape, generator=rng, device=means.device)
        return means + self._log_stds.exp() * normal

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-densities `[…]` of samples `[…, n]`."""
        distance = (actions - self._means) * (-self._log_stds).exp()
        each = -0.5 * distance.square() - self._log_stds - HALF_LOG_2PI
        if self._squash:
            each = each - _log_tanh_slope(actions)
        return each.sum(-1)

    def entropy(self) -> Tensor:
        """Differential entropies `[…]`, with tanh as exact as float32."""
        each = self._log_stds + HALF_LOG_2PI + 0.5
        if self._squash:
            each = each + _mean_log_tanh_slope(self._means, self._log_stds.exp())
        return each.sum(-1)

    def kl(self, other: TorchGaussian) -> Tensor:
        """KL(self ‖ other) `[…]`."""
        ratio = self._log_stds - other._log_stds
        square = ((self._means - other._means) * (-other._log_stds).exp()).square()
        return (0.5 * ((2 * ratio).exp() + square - 1.0) - ratio).sum(-1)


class TorchJoint:
    """Independent choices by their logits, then numbers by means and log standard deviations."""

    def __init__(self, parameters: Tensor, spec: ActionSpec) -> None:
        *logits, rest = torch.split(parameters, [*spec.counts, 2 * spec.numbers], -1)
        self._parts: list[TorchCategorical | TorchGaussian] = [
            TorchCategorical(part, spec) for part in logits
        ]
        self._choices = len(logits)
        if spec.numbers:
            self._parts.append(TorchGaussian(rest, spec))

    @staticmethod
    def mask(parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Parameters with `MASKED` at the (leading) logits where `mask` `[…, A]` is False."""
        if mask is None:
            return parameters
        possible = nn.functional.pad(mask, (0, parameters.shape[-1] - mask.shape[-1]), value=True)
        return parameters.masked_fill(~possible, MASKED)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Joint log-probabilities `[…]` of actions `[…, C + n]`."""
        choices, numbers = actions.tensor_split([self._choices], -1)
        taken = [*choices.long().unbind(-1), numbers]
        # of choices alone there are no numbers
        each = zip(self._parts, taken, strict=False)
        return torch.stack([part.log_prob(of_part) for part, of_part in each]).sum(0)

    def entropy(self) -> Tensor:
        """Joint entropies `[…]` in nats."""
        return torch.stack([part.entropy() for part in self._parts]).sum(0)

    def kl(self, other: TorchJoint) -> Tensor:
        """Joint KL(self ‖ other) `[…]` in nats."""
        each = zip(self._parts, other._parts, strict=True)
        return torch.stack([mine.kl(its) for mine, its in each]).sum(0)  # type: ignore[arg-type]


@functools.cache
def _logistic(device: torch.device) -> tuple[Tensor, Tensor]:
    """Shares and deviations, float32; once, since each upload waits for the device."""
    with torch.inference_mode(False):  # else they could not be saved for a backward pass
        shares, stds = (
            torch.tensor(each, dtype=torch.float32, device=device)
            for each in (LOGISTIC_SHARES, LOGISTIC_STDS)
        )
    return shares, stds


def _mean_log_tanh_slope(means: Tensor, stds: Tensor) -> Tensor:
    """Mean of log tanh′(u) over u ~ N(mean, std²), differentiable."""
    shares, of_logistic = _logistic(means.device)
    m = means.unsqueeze(-1)
    t = torch.hypot(stds.unsqueeze(-1), of_logistic)
    away = m / (t * math.sqrt(2.0))
    sizes = t * math.sqrt(2.0 / math.pi) * (-away.square()).exp() + m * away.erf()
    return 2.0 * (math.log(2.0) - (shares * sizes).sum(-1))


def _log_tanh_slope(u: Tensor) -> Tensor:
    size = u.abs()
    return 2.0 * (math.log(2.0) - size - (-2.0 * size).exp().log1p())
