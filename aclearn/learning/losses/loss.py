"""The contract of a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from aclearn.config import LossConfig
from aclearn.distributions import TorchDistribution
from aclearn.learning.batch import Batch
from correctors import Correction


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of the target policy π for a batch's T steps; tensors are `[T, B]` float32.

    Attributes:
        distribution: of the actions, with gradient.
        log_probs: log π(a) of the actions taken, with gradient.
        values: V(x), or Q(x, a) of the actions taken where `policy.critic` is q; with gradient, to
            be regressed on the correction's targets. With `loss.normalise_returns` both are in
            units of the returns' running mean and standard deviation.
        proximal_log_probs: log π(a), no gradient, by the weights of the correction: those of this
            update, or with frozen targets those of the batch's first pass or of the target network.
        proximal_values: `values` by the same weights, no gradient.
        mode_values: Q(x, μ(x)) of the policy's mode μ, with gradient for the policy's weights
            alone; None unless the critic is one of Box actions.
    """

    distribution: TorchDistribution
    log_probs: Tensor
    values: Tensor
    proximal_log_probs: Tensor
    proximal_values: Tensor
    mode_values: Tensor | None = None


class LossSums(NamedTuple):
    """Scalars of a loss, each a sum over the valid steps, so that parts add up.

    Attributes:
        total: the loss to differentiate.
        metrics: by name; the trainer reports their means over the valid steps.
    """

    total: Tensor
    metrics: Mapping[str, Tensor]


class Loss(ABC):
    """A loss; made without arguments.

    Attributes:
        config_model: of the section `loss` with the loss's own keys. One that extends
            `TargetNetworkConfig` makes the trainer keep a target network, which freezes targets.
        recomputes_targets: True: each update computes targets and advantages by its weights, and
            minibatches are environments. False: targets are computed once per batch, before its
            first update, and minibatches are single steps in random order, `[1, N]`.
        needs: the fields of `Correction` that it reads, and `behaviour_parameters` where it reads
            those of the batch.
    """

    config_model: ClassVar[type[LossConfig]] = LossConfig
    recomputes_targets: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "advantages", "weights"})

    @abstractmethod
    def __call__(
        self, batch: Batch, outputs: Outputs, correction: Correction, config: Any
    ) -> LossSums:
        """The sums over the valid steps of `batch`, which may be a part of the update's batch.

        Args:
            batch: steps that are not `valid` must not count, whatever they hold; a corrector may
                have made them so.
            outputs: of the policy that is updated.
            correction: targets, advantages and weights; may be NaN where steps are not valid.
            config: an instance of `config_model`.
        """

    def ends_batch(self, metrics: Mapping[str, float | Tensor], config: Any) -> bool | Tensor:
        """Whether the remaining epochs of a batch are left out after one of its updates.

        In a CUDA graph metrics are tensors `[]`. A comparison of them is one too, of bool, which
        must not be asked for its truth there.

        Args:
            metrics: of the loss and of the correctors, means over the steps of the update.
            config: an instance of `config_model`.
        """
        return False
