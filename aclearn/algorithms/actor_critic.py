"""The actor-critic loss on corrected targets and advantages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from aclearn.algorithms.algorithm import Loss, LossSums, Outputs
from aclearn.algorithms.keys import EntropyCost, ValueCost
from aclearn.config import LossConfig

if TYPE_CHECKING:
    from aclearn.learning.batch import Batch
    from correctors import Correction


class ActorCriticConfig(LossConfig):
    """Policy gradient, value regression and entropy bonus."""

    entropy_cost: EntropyCost = 0.01
    value_cost: ValueCost = 0.5


class ActorCritic(Loss):
    """Policy gradient, value regression and entropy bonus (Espeholt et al. 2018, §4.2).

    The total is policy_loss + value_cost · value_loss − entropy_cost · entropy. Its metrics are
    these three: −log π(a) · weighted advantage, ½ (target − value)², and the entropy of π in nats.
    """

    config_model = ActorCriticConfig

    @override
    def __call__(
        self, batch: Batch, outputs: Outputs, correction: Correction, config: ActorCriticConfig
    ) -> LossSums:
        # around the factors, not around their product: in the backward pass 0 × NaN is NaN
        taken = batch.of_valid(outputs.log_probs)
        policy = -(taken * batch.of_valid(correction.weighted_advantages)).sum()
        value = 0.5 * batch.of_valid(correction.targets - outputs.values).square().sum()
        entropy = batch.of_valid(outputs.distribution.entropy()).sum()
        total = policy + config.value_cost * value - config.entropy_cost * entropy
        return LossSums(total, {"policy_loss": policy, "value_loss": value, "entropy": entropy})
