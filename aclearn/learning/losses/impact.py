"""IMPACT: the clipped surrogate around a target network."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from aclearn.config import IMPACTConfig
from aclearn.learning.batch import Batch
from aclearn.learning.losses.loss import Outputs
from aclearn.learning.losses.ppo import PPO


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
