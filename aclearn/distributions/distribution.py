"""The interface of a distribution of actions, in numpy for actors and in torch for learners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from aclearn.types import ActionSpec

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float32]


class Distribution(Protocol):
    """Distributions of actions, by parameters `[B, P]` float32, masked if there are masks.

    Attributes:
        parameter_count: P, the number of parameters for each observation.
    """

    parameter_count: int

    def __init__(self, spec: ActionSpec) -> None: ...

    def mask(self, parameters: Floats, mask: NDArray[np.bool_] | None) -> Floats:
        """Parameters under which the choices where `mask` `[B, A]` is False have probability 0.

        All other methods take masked parameters; without a mask they are unchanged.

        Raises:
            ValueError: a mask of another shape, or one that leaves no action.
        """

    def with_min_action_prob(self, parameters: Floats, min_action_prob: float) -> Floats:
        """Parameters under which each allowed action has at least this probability.

        The rest is left to the (masked) policy. Unchanged for 0.
        """

    def sample(self, parameters: Floats, rng: np.random.Generator) -> tuple[NDArray[Any], Floats]:
        """Actions `[B, *spec.shape]` of `spec.dtype` and their log-probabilities `[B]` float32."""

    def mode(self, parameters: Floats) -> NDArray[Any]:
        """The most probable action of each row, in the form of `sample`."""

    def named(self, parameters: Floats) -> dict[str, Any]:
        """`probabilities` of choices, `[B, A]` or one for each; `mean` and `std` `[B, n]`."""

    def same_mode(self, parameters: Floats, other: Floats) -> NDArray[np.bool_]:
        """Whether both prefer the same action, `[B]`."""

    def log_prob(self, parameters: Floats, actions: NDArray[Any]) -> Floats:
        """Log-probabilities `[B]` of actions in the form of `sample`."""

    def entropy(self, parameters: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Entropy of each row `[B]`, in nats."""

    def kl(
        self, parameters: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]]
    ) -> NDArray[np.float64]:
        """KL(p ‖ q) `[B]` in nats, p by `parameters`, q by `other`."""


class TorchDistribution(Protocol):
    """The distributions of one tensor of (masked) parameters `[…, P]`, differentiable."""

    def __init__(self, parameters: Tensor, spec: ActionSpec) -> None: ...

    @staticmethod
    def mask(parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Masked parameters `[…, P]`: choices where `mask` is False have probability 0."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probabilities `[…]` float32 of actions `[…, *spec.shape]`, int64 or float32."""

    def entropy(self) -> Tensor:
        """Entropies `[…]` float32, in nats."""

    def kl(self, other: Self) -> Tensor:
        """KL(self ‖ other) `[…]` float32, in nats."""
