"""The deterministic policy gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from aclearn.algorithms.algorithm import (
    MAX_COST,
    Loss,
    LossSums,
    NoiseConfig,
    Outputs,
    TargetNetworkConfig,
)
from aclearn.config import Config, Whole
from aclearn.config.loss import loss_kind

if TYPE_CHECKING:
    from aclearn.learning.batch import Batch
    from correctors import Correction

#: Correctors of returns by which any policy's data are learned as they are.
_RETURNS = ("n_step", "no_correction")


class DDPGConfig(TargetNetworkConfig, NoiseConfig):
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
    source = "fifo"

    kind: str = loss_kind("ddpg")
    target_update_every: Whole = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="updates from one change of the target network to the next",
    )
    target_update_rate: float = Field(
        default=0.05,
        gt=0.0,
        le=1.0,
        description="τ: share of the way to the newest weights that it then goes; 1 copies them",
    )
    reward_scale: float = Field(
        default=1.0,
        gt=0.0,
        le=MAX_COST,
        description="factor of the rewards, so that the values to learn are not far above 1",
    )
    buffer_unrolls: Whole = Field(
        default=4,
        ge=1,
        le=1024,
        description="newest unrolls of each environment that every update learns from",
    )

    def learned_together(self, config: Config) -> int:
        """Steps of the buffer."""
        return config.actors.unroll_length * self.buffer_unrolls

    def contradictions(self, config: Config) -> Iterator[str]:
        """Keys of a stochastic policy, of another critic, and of other places of environments."""
        yield from super().contradictions(config)
        policy = config.policy
        if config.resident.envs is None:
            yield (
                "loss.kind: ddpg learns from environments on the trainer's device; set "
                "resident.envs (docs/resident.md), or take ppo or actor_critic"
            )
        if not config.env.squash_actions:
            yield "env.squash_actions: the policy of ddpg ends with tanh; set it to true"
        if policy.is_users:
            yield (
                "policy.architecture: ddpg adds a critic of actions to a network of aclearn, and "
                f"{policy.architecture} is yours; set it to mlp"
            )
        for where, key, value, why in (
            (policy, "critic", "v", "ddpg has a critic of its own"),
            (policy, "separate_value", None, "the critic of ddpg has hidden layers of its own"),
            (policy, "std_from_observations", False, "the policy of ddpg is deterministic"),
            (policy, "initial_std", 1.0, "the policy of ddpg is deterministic; see loss.noise_std"),
            (self, "normalise_advantages", False, "ddpg has no advantages"),
            (self, "normalise_returns", False, "ddpg has loss.reward_scale instead"),
        ):
            if getattr(where, key) != value:
                yield f"{'loss' if where is self else 'policy'}.{key}: {why}; remove it"
        for index, corrector in enumerate(config.correctors):
            if ":" not in corrector.name and corrector.name not in _RETURNS:
                yield (
                    f"correctors[{index}] {corrector.name}: ddpg has no probabilities to compare; "
                    f"take {' or '.join(_RETURNS)}"
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

    def __call__(
        self, batch: Batch, outputs: Outputs, correction: Correction, config: DDPGConfig
    ) -> LossSums:
        """As `Loss.__call__`."""
        import torch

        assert outputs.mode_values is not None  # the configuration's checks see to it
        valid, zero = batch.valid, torch.zeros((), device=outputs.values.device)
        policy = -torch.where(valid, outputs.mode_values, zero).sum()
        value = 0.5 * torch.where(valid, correction.targets - outputs.values, zero).square().sum()
        return LossSums(policy + value, {"policy_loss": policy, "value_loss": value})
