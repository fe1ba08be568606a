"""The deterministic policy gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from aclearn.algorithms.algorithm import Loss, LossSums, Outputs
from aclearn.algorithms.keys import (
    MAX_COST,
    ActionCriticConfig,
    NoiseConfig,
    TargetNetworkConfig,
    TargetUpdateEvery,
    TargetUpdateRate,
    without_effect,
)
from aclearn.config import Config, Whole
from aclearn.config.loss import LossKind

if TYPE_CHECKING:
    from torch import Tensor

    from aclearn.learning.batch import Batch
    from correctors import Correction

#: Correctors of returns by which any policy's data are learned as they are.
_RETURNS = ("n_step", "no_correction")


class DDPGConfig(ActionCriticConfig, NoiseConfig, TargetNetworkConfig):
    """HDDPG: a deterministic policy for Box actions, and a critic of its actions."""

    usual_correctors = ("n_step",)
    usual: ClassVar[Mapping[str, Any]] = {  # of resident/pendulum_hddpg
        "actors.unroll_length": 8,
        "trainer.minibatches": 4,
        "trainer.epochs": 2,
        "optimiser.learning_rate": 1e-3,
        "optimiser.max_grad_norm": 0.0,
    }

    critic = "action"

    kind: LossKind = "ddpg"
    target_update_every: TargetUpdateEvery = 1
    target_update_rate: TargetUpdateRate = 0.05
    reward_scale: float = Field(
        default=1.0,
        gt=0.0,
        le=MAX_COST,
        description="factor of the rewards, so that the values to learn are not far above 1",
    )
    memory: Literal["fifo", "replay"] = Field(
        default="fifo",
        description="fifo: every update learns from the newest steps of resident environments; "
        "replay: from steps that a replay memory draws (the group replay)",
    )
    buffer_unrolls: Whole = Field(
        default=4,
        ge=1,
        le=1024,
        description="fifo: newest unrolls of each environment that every update learns from",
    )

    @classmethod
    @override
    def usual_of(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        if data.get("memory") != "replay":
            return cls.usual
        # `replay.ratio` says how often a step is learned, and a memory is older than any unroll
        of_trainer = {"trainer.minibatches": 1, "trainer.epochs": 1}
        return {**cls.usual, **of_trainer, "trainer.max_lag_versions": 1_000_000}

    @classmethod
    @override
    def source_of(cls, data: Mapping[str, Any]) -> str:
        return "replay" if data.get("memory") == "replay" else "fifo"

    @property
    def source(self) -> Literal["fifo", "replay"]:  # type: ignore[override]
        """The memory."""
        return self.memory

    def learned_together(self, config: Config) -> int:
        """Steps of the buffer."""
        return config.actors.unroll_length * self.buffer_unrolls

    @override
    def contradictions(self, config: Config) -> Iterator[str]:
        yield from super().contradictions(config)
        if config.resident.envs is None and self.memory == "fifo":
            yield (
                "loss.memory: fifo needs the same environments in each batch, and actors' unrolls "
                "are of any; set it to replay, or resident.envs (docs/resident.md)"
            )
        why = "the policy of ddpg is deterministic"
        yield from without_effect(
            config,
            {
                "policy.std_from_observations": why,
                "policy.initial_std": f"{why}; see loss.noise_std",
            },
        )
        for index, corrector in enumerate(config.correctors):
            if ":" not in corrector.name and corrector.name not in _RETURNS:
                yield (
                    f"correctors[{index}] {corrector.name}: ddpg has no probabilities to compare; "
                    f"take {' or '.join(_RETURNS)}"
                )

    @override
    def doubts(self, config: Config) -> Iterator[str]:
        if self.memory == "replay" and any(self.changed("buffer_unrolls")):
            yield (
                "loss.buffer_unrolls: it has no effect on a replay memory; remove it, or set "
                "loss.memory to fifo"
            )


class DDPG(Loss):
    """The policy μ climbs the critic Q, which regresses targets (Sha & Lan 2024, algorithm 2).

    The total is policy_loss + value_loss. Of each step, policy_loss is −Q(x, μ(x)), whose gradient
    reaches the weights of μ alone, and value_loss is ½ (target − Q(x, a))² of the action taken.
    Targets are by μ and Q of the target network.
    """

    config_model = DDPGConfig
    recomputes_targets = False
    needs = frozenset({"targets"})

    @override
    def rewards(self, batch: Batch, config: DDPGConfig) -> Tensor:
        return batch.rewards * config.reward_scale

    @override
    def __call__(
        self, batch: Batch, outputs: Outputs, correction: Correction, config: DDPGConfig
    ) -> LossSums:
        import torch

        assert outputs.mode_values is not None  # the configuration's checks see to it
        valid, zero = batch.valid, torch.zeros((), device=outputs.values.device)
        policy = -torch.where(valid, outputs.mode_values, zero).sum()
        errors = torch.where(valid, correction.targets - outputs.values, zero)
        squares = errors.square() if batch.weights is None else batch.weights * errors.square()
        value = 0.5 * squares.sum()
        metrics = {"policy_loss": policy, "value_loss": value}
        return LossSums(policy + value, metrics, errors.detach().abs())
