"""`Bernoulli` in torch."""

from __future__ import annotations

import torch

from aclearn.distributions.categorical import MASKED
from aclearn.distributions.torch_categorical import TorchCategorical


class TorchBernoulli(TorchCategorical):
    def __init__(self, parameters, spec):
        super().__init__(torch.cat([torch.zeros_like(parameters), parameters], -1), spec)

    @staticmethod
    def mask(parameters, mask):
        if mask is None:
            return parameters
        return parameters.masked_fill(~mask[..., 1:], MASKED).masked_fill(~mask[..., :1], -MASKED)
