"""Distributions of actions, by a policy's parameters. Only the torch side imports torch.

A distribution is a class for numpy, one for torch, and a row of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from aclearn.distributions.categorical import Categorical, epsilon_greedy
from aclearn.distributions.distribution import Distribution, TorchDistribution
from aclearn.distributions.gaussian import Gaussian
from aclearn.distributions.joint import Joint
from aclearn.types import ActionSpec

if TYPE_CHECKING:
    from torch import Tensor

#: By `ActionSpec.kind`: the class in numpy; module and class in torch.
_DISTRIBUTIONS: dict[str, tuple[type[Distribution], str, str]] = {
    "discrete": (Categorical, "torch_categorical", "TorchCategorical"),
    "multi_discrete": (Joint, "torch_distributions", "TorchJoint"),
    "box": (Gaussian, "torch_distributions", "TorchGaussian"),
    "mixed": (Joint, "torch_distributions", "TorchJoint"),
}


@dataclass(frozen=True)
class TorchDistributions:
    """Makes the distributions of one kind in torch."""

    kind: type[TorchDistribution]
    spec: ActionSpec

    def __call__(self, parameters: Tensor, mask: Tensor | None = None) -> TorchDistribution:
        """The distributions of parameters `[…, P]`, unmasked or masked already.

        Choices where `mask` `[…, A]` is False have probability 0; None: all are possible.
        """
        return self.kind(self.kind.mask(parameters, mask), self.spec)


def distribution_of(spec: ActionSpec) -> Distribution:
    """The distribution of such actions."""
    return _DISTRIBUTIONS[spec.kind][0](spec)


def torch_distribution_of(spec: ActionSpec) -> TorchDistributions:
    """The distribution of such actions in torch, which this imports."""
    _, module, name = _DISTRIBUTIONS[spec.kind]
    return TorchDistributions(getattr(import_module(f"{__name__}.{module}"), name), spec)


__all__ = [
    "Distribution",
    "TorchDistribution",
    "distribution_of",
    "epsilon_greedy",
    "torch_distribution_of",
]
