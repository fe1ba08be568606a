"""The contract of an algorithm, and of one that is only a loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from aclearn.algorithms.keys import TargetNetworkConfig
from aclearn.config import LossConfig

if TYPE_CHECKING:  # roles without torch read the configuration, and with it the algorithms
    from torch import Generator, Tensor

    from aclearn.distributions import TorchDistribution
    from aclearn.learning.batch import Batch
    from aclearn.learning.networks import Networks
    from correctors import Correction


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of the target policy π for a batch's T steps; tensors are `[T, B]` float32.

    Attributes:
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
        metrics: by name; the trainer reports their means over the valid steps.
        errors: `[T, B]` without gradient, size of each step's error, for prioritised replay.
    """

    total: Tensor
    metrics: Mapping[str, Tensor]
    errors: Tensor | None = None


class Group(NamedTuple):
    """Weights that the optimiser treats alike.

    Attributes:
        names: prefixes of names of weights, and of learned scalars. A weight is in the group of
            the longest prefix that its name has.
        learning_rate: None: `optimiser.learning_rate`.
        max_grad_norm: None: `optimiser.max_grad_norm`.
    """

    names: tuple[str, ...] = ("",)
    learning_rate: float | None = None
    max_grad_norm: float | None = None


class TargetCopies(NamedTuple):
    """Weights of a target network, which follow the newest ones slowly.

    Attributes:
        every: updates from one change to the next.
        rate: share of the way to the newest weights that a change goes; 1 copies them.
        names: prefixes of names of weights; the target network's others are the newest.
    """

    every: int = 1
    rate: float = 1.0
    names: tuple[str, ...] = ("",)


class Algorithm:
    """How a policy learns from a batch; made without arguments.

    Attributes:
        config_model: of the section `loss` with the algorithm's own keys. Its class variables say
            what processes without torch must know: the critic, how actors act, the batches' source.
            One that extends `TargetNetworkConfig` makes the trainer keep a target network, which
            freezes targets.
        recomputes_targets: True: each update computes targets and advantages by its weights, and
            minibatches are environments. False: targets are computed once per batch, before its
            first update, and minibatches are single steps in random order, `[1, N]`.
        needs: the fields of `Correction` that it reads, and `behaviour_parameters` where it reads
            those of the batch.
    """

    config_model: ClassVar[type[LossConfig]] = LossConfig
    recomputes_targets: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"targets", "advantages", "weights"})

    def groups(self, config: Any) -> Mapping[str, Group]:
        """The groups of the optimiser: each weight and learned scalar is in one of them."""
        return {"all": Group()}

    def scalars(self, config: Any) -> Mapping[str, float]:
        """First values of learned numbers beside the weights, by name."""
        return {}

    def targets(self, config: Any) -> TargetCopies | None:
        """The weights of the target network; None: there is none."""
        if isinstance(config, TargetNetworkConfig):
            return TargetCopies(config.target_update_every, config.target_update_rate)
        return None

    def losses(
        self,
        batch: Batch,
        networks: Networks,
        targets: Networks,
        rng: Generator,
        config: Any,
    ) -> Mapping[str, LossSums]:
        """The losses of each group's weights: sums over the valid steps of a part of a batch.

        All are differentiated together, so that a gradient must reach its own group alone. A weight
        that none reaches in an update has the gradient 0, so that Adam moves it on by its momentum.

        Args:
            batch: steps that are not `valid` must not count, whatever they hold.
            targets: the target network, without gradient; `networks` if there is none.
            config: an instance of `config_model`.
        """
        raise NotImplementedError

    def ends_batch(self, metrics: Mapping[str, float | Tensor], config: Any) -> bool | Tensor:
        """Whether the remaining epochs of a batch are left out after one of its updates.

        In a CUDA graph metrics are tensors `[]`. A comparison of them is one too, of bool, which
        must not be asked for its truth there.

        Args:
            metrics: of the loss and of the correctors, means over the steps of the update.
        """
        return False


class Loss(Algorithm, ABC):
    """An algorithm that is one loss of the policy's outputs and of the corrector chain's result."""

    def rewards(self, batch: Batch, config: Any) -> Tensor:
        """The rewards `[T, B]` that returns are made of."""
        return batch.rewards

    @abstractmethod
    def __call__(
        self, batch: Batch, outputs: Outputs, correction: Correction, config: Any
    ) -> LossSums:
        """The sums over the valid steps of `batch`, which may be a part of the update's batch.

        Args:
            batch: steps that are not `valid` must not count, whatever they hold; a corrector may
                have made them so.
            correction: targets, advantages and weights; may be NaN where steps are not valid.
        """
