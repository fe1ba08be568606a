"""Soft actor-critic: two critics, and a temperature that keeps the policy's entropy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import log
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from typing_extensions import override

from aclearn.algorithms.algorithm import Algorithm, Group, LossSums, TargetCopies
from aclearn.algorithms.keys import ActionCriticConfig, TargetUpdateEvery, TargetUpdateRate
from aclearn.config import Config
from aclearn.config.loss import LossKind

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from aclearn.learning.batch import Batch
    from aclearn.learning.networks import Networks

#: The critics' weights, and the learned logarithm of the temperature.
_CRITICS = ("value.", "value_hidden.", "second_value.", "second_value_hidden.")
_TEMPERATURE = "log_temperature"


class SACConfig(ActionCriticConfig):
    """Soft actor-critic for Box actions."""

    usual_correctors = ()
    # Haarnoja et al. 2018b, table 1, and one update of 256 steps for each new step
    usual: ClassVar[Mapping[str, Any]] = {
        "actors.unroll_length": 8,
        "trainer.max_lag_versions": 1_000_000,  # a memory is older than any unroll that arrives
        "env.squash_actions": True,
        "policy.std_from_observations": True,
        "policy.activation": "relu",
        "policy.hidden": (256, 256),
        "replay.batch": 256,
        "replay.ratio": 256.0,
        "optimiser.learning_rate": 3e-4,
        "optimiser.max_grad_norm": 0.0,
    }
    critic = "actions"
    source = "replay"

    kind: LossKind = "sac"
    target_update_every: TargetUpdateEvery = 1
    target_update_rate: TargetUpdateRate = 0.005
    initial_temperature: float = Field(
        default=1.0,
        gt=0.0,
        le=1e6,
        description="first weight α of the entropy, reward per nat; it is learned",
    )
    target_entropy: float | None = Field(
        default=None,
        description="entropy that the temperature is learned to keep, in nats, where an action's "
        "bounds are -1 and 1; null: minus the number of an action's numbers",
    )

    @override
    def contradictions(self, config: Config) -> Iterator[str]:
        yield from super().contradictions(config)
        if not config.policy.std_from_observations:
            yield (
                "policy.std_from_observations: the policy of sac gives a standard deviation for "
                "each observation; set it to true"
            )
        if config.correctors:
            yield "correctors: sac corrects nothing, it learns any policy's steps; set it to []"


class SAC(Algorithm):
    """Soft actor-critic with a learned temperature (Haarnoja et al. 2018b).

    Of each step, with fresh a' ~ π(x') and a ~ π(x), y = r + γ (min Q'(x', a') − α log π(a')):

    * critics: Σ ½ (y − Q(x, a_taken))², Q' being slow copies of the critics;
    * policy: α log π(a) − min Q(x, a);
    * temperature: −log α (log π(a) + target entropy).

    Before `replay.start` the first policy acts, where other implementations act at random: of
    whatever observation, it is within 0.03 nats a number of the uniform distribution.
    """

    config_model = SACConfig

    @override
    def groups(self, config: SACConfig) -> Mapping[str, Group]:
        return {
            "policy": Group(),
            "critics": Group(_CRITICS),
            "temperature": Group((_TEMPERATURE,)),
        }

    @override
    def scalars(self, config: SACConfig) -> Mapping[str, float]:
        return {_TEMPERATURE: log(config.initial_temperature)}

    @override
    def targets(self, config: SACConfig) -> TargetCopies:
        return TargetCopies(config.target_update_every, config.target_update_rate, _CRITICS)

    @override
    def losses(
        self,
        batch: Batch,
        networks: Networks,
        targets: Networks,
        rng: Generator,
        config: SACConfig,
    ) -> Mapping[str, LossSums]:
        import torch

        leaves = {name: leaf[:-1] for name, leaf in batch.observations.items()}
        reached = {name: leaf[1:] for name, leaf in batch.observations.items()}
        log_temperature = networks.scalars[_TEMPERATURE]
        temperature = log_temperature.detach().exp()
        with torch.no_grad():
            actions, log_probs = _drawn(networks, reached, rng)
            values = torch.stack(targets.action_values(reached, actions))
            discounts = batch.discounts_of(config.discount)
            y = soft_targets(batch.rewards, discounts, values, log_probs, temperature)
        y = batch.of_valid(y)  # NaN in a step that does not count would reach the gradient
        errors = y - torch.stack(networks.action_values(leaves, batch.actions.tanh()))
        squares = 0.5 * errors.square().sum(0)
        if batch.weights is not None:
            squares = squares * batch.weights
        actions, log_probs = _drawn(networks, leaves, rng)
        values = torch.stack(networks.action_values(leaves, actions, fixed=True))
        policy = soft_policy_loss(log_probs, values, temperature)
        numbers = batch.actions.shape[-1]
        entropy = -float(numbers) if config.target_entropy is None else config.target_entropy
        adapted = temperature_loss(log_temperature, log_probs.detach(), entropy)

        def total(each: Tensor) -> Tensor:
            return batch.of_valid(each).sum()

        value_loss, policy_loss = total(squares), total(policy)
        return {
            "critics": LossSums(
                value_loss, {"value_loss": value_loss}, errors.detach().abs().mean(0)
            ),
            "policy": LossSums(
                policy_loss,
                {"policy_loss": policy_loss, "entropy": -total(log_probs.detach())},
            ),
            "temperature": LossSums(
                total(adapted), {"temperature": total(temperature.expand_as(log_probs))}
            ),
        }


def soft_targets(
    rewards: Tensor, discounts: Tensor, values: Tensor, log_probs: Tensor, temperature: Tensor
) -> Tensor:
    """Targets r + γ (min Q'(x', a') − α log π(a'|x')) `[…]`, of each critic's values `[2, …]`.

    γ is 0 behind a terminated step.
    """
    return rewards + discounts * (values.amin(0) - temperature * log_probs)


def soft_policy_loss(log_probs: Tensor, values: Tensor, temperature: Tensor) -> Tensor:
    """α log π(a|x) − min Q(x, a) `[…]`, of each critic's values `[2, …]`."""
    return temperature * log_probs - values.amin(0)


def temperature_loss(log_temperature: Tensor, log_probs: Tensor, entropy: float) -> Tensor:
    """−log α (log π(a|x) + H) `[…]`, by whose descent π keeps the entropy H."""
    return -log_temperature * (log_probs + entropy)


def _drawn(
    networks: Networks, leaves: Mapping[str, Tensor], rng: Generator
) -> tuple[Tensor, Tensor]:
    """Actions `[T, B, n]` between -1 and 1 that the policy draws, and their log π `[T, B]`."""
    from aclearn.distributions.torch_distributions import TorchGaussian

    shape = next(iter(leaves.values())).shape[:2]
    flat = {name: leaf.flatten(0, 1) for name, leaf in leaves.items()}
    parameters = networks.step(flat).parameters
    policy = networks.distribution(parameters.view(*shape, -1))
    assert isinstance(policy, TorchGaussian)  # the critics are of Box actions
    sampled = policy.sample(rng)
    return sampled.tanh(), policy.log_prob(sampled)
