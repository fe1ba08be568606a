"""Proximal policy optimisation: the clipped surrogate, around the batch's first policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from typing_extensions import override

from aclearn.algorithms.algorithm import Loss, LossSums, Outputs
from aclearn.algorithms.keys import EntropyCost, ValueCost
from aclearn.config import Config, LossConfig
from aclearn.config.loss import LossKind

if TYPE_CHECKING:
    from torch import Tensor

    from aclearn.learning.batch import Batch
    from correctors import Correction


class PPOConfig(LossConfig):
    """Proximal policy optimisation with clipped ratios."""

    usual_correctors = ({"vtrace": {"lambda": 0.95}}, "importance_sampling")
    # Schulman et al. 2017, as Stable-Baselines3 and CleanRL have it: about ten passes over a batch
    usual: ClassVar[Mapping[str, Any]] = {
        "actors.unroll_length": 128,
        "trainer.minibatches": 32,
        "trainer.epochs": 10,
    }
    #: The weights around which ratios are clipped.
    centre: ClassVar[str] = "the policy before the batch"

    kind: LossKind = "ppo"
    normalise_advantages: bool = Field(
        default=True,
        description="subtract the batch's mean advantage and divide by the standard deviation",
    )
    clip_range: float = Field(
        default=0.2,
        gt=0.0,
        lt=1.0,
        description="ε: beyond 1 ± ε a ratio to the policy before the batch gains nothing more",
    )
    value_clip: float | None = Field(
        default=None,
        gt=0.0,
        description="largest change of a value in one batch that is rewarded; null: no bound",
    )
    entropy_cost: EntropyCost = 0.0
    value_cost: ValueCost = 1.0
    target_kl: float | None = Field(
        default=None,
        gt=0.0,
        description="mean KL divergence from the policy before the batch, in nats, above which "
        "the remaining epochs of the batch are left out; null: no bound",
    )

    def never_clips(self, config: Config) -> bool:
        """Whether every ratio is 1, since the clip's centre is the policy before each update."""
        return config.trainer.epochs * config.trainer.minibatches == 1

    @override
    def doubts(self, config: Config) -> Iterator[str]:
        if self.never_clips(config):
            yield (
                "trainer.epochs: with one update a batch (trainer.minibatches: 1) every ratio to "
                f"{self.centre} is 1, so that loss.clip_range never acts; set this to "
                f"{self.usual['trainer.epochs']} or so, and that to "
                f"{self.usual['trainer.minibatches']}, or take loss.kind: actor_critic"
            )
        if self.target_kl is not None and config.trainer.epochs == 1:
            yield (
                "loss.target_kl: it leaves out the epochs that remain, and trainer.epochs is 1; "
                "raise that, or set this to null"
            )


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

    @override
    def __call__(
        self, batch: Batch, outputs: Outputs, correction: Correction, config: PPOConfig
    ) -> LossSums:
        import torch

        from correctors.importance import MAX_LOG_RHO

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
                "clipped_ratio_share": (ratios != clipped).sum(dtype=torch.float32),
                # expm1: r − 1 would lose the digits of a ratio near 1
                "proximal_kl": (moved.expm1() - moved).sum(),
            }
        return LossSums(total, metrics)

    @override
    def ends_batch(self, metrics: Mapping[str, float | Tensor], config: PPOConfig) -> bool | Tensor:
        return config.target_kl is not None and metrics["proximal_kl"] > config.target_kl

    def _log_ratios(self, batch: Batch, outputs: Outputs, config: PPOConfig) -> Tensor:
        """The logarithm of r, `[T, B]`, with gradient; anything where steps are not valid."""
        return outputs.log_probs - outputs.proximal_log_probs
