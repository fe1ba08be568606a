"""IMPACT: the clipped surrogate around a target network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from typing_extensions import override

from aclearn.algorithms.algorithm import Outputs
from aclearn.algorithms.keys import TargetNetworkConfig
from aclearn.algorithms.ppo import PPO, PPOConfig
from aclearn.config import Config
from aclearn.config.correctors import MAX_BAR
from aclearn.config.loss import LossKind

if TYPE_CHECKING:
    from torch import Tensor

    from aclearn.learning.batch import Batch


class IMPACTConfig(PPOConfig, TargetNetworkConfig):
    """PPO's clip around a target network, which outlives a batch."""

    # the clip is around weights of the past, so that few passes over a batch are enough
    usual: ClassVar[Mapping[str, Any]] = {
        "actors.unroll_length": 64,
        "trainer.minibatches": 8,
        "trainer.epochs": 2,
    }
    centre = "the target network"

    kind: LossKind = "impact"
    clip_range: float = Field(
        default=0.3,
        gt=0.0,
        lt=1.0,
        description="ε: beyond 1 ± ε a ratio to the target network gains nothing more",
    )
    ratio_bar: float = Field(
        default=2.0,
        ge=1.0,
        le=MAX_BAR,
        description="bound of μ/π_target in the ratio min(bound, μ/π_target) · π/μ",
    )
    target_kl: float | None = Field(
        default=None,
        gt=0.0,
        description="mean KL divergence from the target network, in nats, above which the "
        "remaining epochs of a batch are left out; null: no bound",
    )

    @override
    def never_clips(self, config: Config) -> bool:
        copied = self.target_update_every == 1 and self.target_update_rate == 1.0
        return copied and super().never_clips(config)


class IMPACT(PPO):
    """PPO's loss with the ratio r = min(β, μ/π_target) · π/μ (Luo et al. 2020, section 3.1).

    Where μ/π_target is below β this is π/π_target: the clip holds π near a target network, which
    outlives many batches and updates, so that a step can be learned more than once. β bounds r
    where the target network has nearly given up an action that μ chose. Targets and advantages are
    V-trace's, by the policy and the values of the target network, as in the paper's batch buffer.
    The weights min(ρ̄, π_target/μ) of the advantages are those of the authors' code.
    """

    config_model = IMPACTConfig

    def _log_ratios(self, batch: Batch, outputs: Outputs, config: Any) -> Tensor:
        behaviour = batch.behaviour_log_prob
        truncated = (behaviour - outputs.proximal_log_probs).clamp(max=math.log(config.ratio_bar))
        return truncated + outputs.log_probs - behaviour
