"""Distributions of actions: what a policy's parameters mean. Torch comes with the torch side only.

A distribution is a class for numpy, one for torch, and a row of the table.
"""

from __future__ import annotations

from importlib import import_module

from aclearn.distributions.categorical import Categorical
from aclearn.distributions.distribution import Distribution, TorchDistribution
from aclearn.types import ActionSpec

#: By `ActionSpec.kind`: the class in numpy; module and class in torch.
_DISTRIBUTIONS: dict[str, tuple[type[Distribution], str, str]] = {
    "discrete": (Categorical, "torch_categorical", "TorchCategorical"),
}


def distribution_of(spec: ActionSpec) -> Distribution:
    """The distribution that a policy for such actions gives the parameters of."""
    return _DISTRIBUTIONS[spec.kind][0](spec)


def torch_distribution_of(spec: ActionSpec) -> type[TorchDistribution]:
    """The same in torch: to be made of the parameters. Imports torch."""
    _, module, name = _DISTRIBUTIONS[spec.kind]
    found: type[TorchDistribution] = getattr(import_module(f"{__name__}.{module}"), name)
    return found


__all__ = [
    "Distribution",
    "TorchDistribution",
    "distribution_of",
    "torch_distribution_of",
]
