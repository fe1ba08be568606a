"""Proximal policy optimisation: the clipped surrogate, around the batch's first policy."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from aclearn.config import PPOConfig
from aclearn.learning.batch import Batch
from aclearn.learning.losses.loss import Loss, LossSums, Outputs
from correctors import Correction
from correctors.importance import MAX_LOG_RHO


class PPO(Loss):
    """The clipped surrogate (Schulman et al. 2017, eq. 7) on frozen targets and advantages.

    The total is policy_loss + value_cost · value_loss − entropy_cost · entropy. Of each step, with
    r = π/π_prox and the weighted advantage A,

    * policy_loss is −min(r · A, clip(r, 1 − ε, 1 + ε) · A);
    * value_loss is ½ (target − value)², with `value_clip` c the larger of this and the same of
      v_prox + clip(value − v_prox, −c, c);
    * entropy is that of π, in nats;
    * clipped_ratio_share counts the r beyond 1 ± ε;
    * proximal_kl estimates KL(π_prox ‖ π) by q − 1 − log q with q = π/π_prox (k3 of Schulman 2020).

    π_prox are the weights before the batch. The weights min(ρ̄, π_prox/μ) of A separate the data's
    age from the size of the step (Hilton et al. 2022, "Batch size-invariance").
    """

    config_model = PPOConfig
    recomputes_targets = False

    def __call__(
        self, batch: Batch, outputs: Outputs, correction: Correction, config: PPOConfig
    ) -> LossSums:
        """As `Loss.__call__`."""
        # around each factor, as in `ActorCritic`
        log_ratios = batch.of_valid(self._log_ratios(batch, outputs, config))
        log_ratios = log_ratios.clamp(max=MAX_LOG_RHO)
        ratios = log_ratios.exp()
        clipped = ratios.clamp(1.0 - config.clip_range, 1.0 + config.clip_range)
        advantages = batch.of_valid(correction.weighted_advantages)
        policy = -torch.minimum(ratios * advantages, clipped * advantages).sum()
        errors = batch.of_valid(correction.targets - outputs.values).square()
        if config.value_clip is not None:
            before = outputs.proximal_values
            change = (outputs.values - before).clamp(-config.value_clip, config.value_clip)
            short = batch.of_valid(correction.targets - (before + change)).square()
            errors = torch.maximum(errors, short)
        value = 0.5 * errors.sum()
        entropy = batch.of_valid(outputs.distribution.entropy()).sum()
        total = policy + config.value_cost * value - config.entropy_cost * entropy
        with torch.no_grad():
            moved = batch.of_valid(outputs.log_probs - outputs.proximal_log_probs)
            moved = moved.clamp(max=MAX_LOG_RHO)
            metrics = {
                "policy_loss": policy,
                "value_loss": value,
                "entropy": entropy,
                "clipped_ratio_share": (ratios != clipped).float().sum(),
                # expm1: r − 1 would lose the digits of a ratio near 1
                "proximal_kl": (moved.expm1() - moved).sum(),
            }
        return LossSums(total, metrics)

    def ends_batch(self, metrics: Mapping[str, float | Tensor], config: PPOConfig) -> bool | Tensor:
        """Whether `proximal_kl` is above `target_kl`."""
        return config.target_kl is not None and metrics["proximal_kl"] > config.target_kl

    def _log_ratios(self, batch: Batch, outputs: Outputs, config: PPOConfig) -> Tensor:
        """The logarithm of r, `[T, B]`, with gradient; anything where steps are not valid."""
        return outputs.log_probs - outputs.proximal_log_probs
