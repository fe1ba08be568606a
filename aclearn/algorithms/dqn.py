"""Deep Q-learning: the policy's parameters are the values of its actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from typing_extensions import override

from aclearn.algorithms.algorithm import Algorithm, LossSums
from aclearn.algorithms.keys import (
    EpsilonConfig,
    TargetNetworkConfig,
    TargetUpdateEvery,
    without_effect,
)
from aclearn.config import Config
from aclearn.config.loss import LossKind

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from aclearn.learning.batch import Batch
    from aclearn.learning.networks import Networks


class DQNConfig(EpsilonConfig, TargetNetworkConfig):
    """DQN: values of discrete actions, learned from a replay memory."""

    usual_correctors = ()
    usual: ClassVar[Mapping[str, Any]] = {
        "actors.unroll_length": 16,
        "trainer.max_lag_versions": 1_000_000,  # a memory is older than any unroll that arrives
        "optimiser.max_grad_norm": 10.0,
        "replay.n_steps": 3,
    }
    critic = "q_values"
    source = "replay"

    kind: LossKind = "dqn"
    double: bool = Field(
        default=True,
        description="targets take the newest weights' best action by the target network's value",
    )
    dueling: bool = Field(
        default=True,
        description="the network gives a value of the state and advantages of actions",
    )
    huber_delta: float = Field(
        default=1.0,
        gt=0.0,
        le=1e6,
        description="size of an error above which its loss grows linearly instead of squared",
    )
    target_update_every: TargetUpdateEvery = 500

    @override
    def contradictions(self, config: Config) -> Iterator[str]:
        yield from super().contradictions(config)
        policy = config.policy
        if policy.is_users:
            yield (
                "policy.architecture: dqn gives a network of aclearn heads of its own, and "
                f"{policy.architecture} is yours; set it to mlp"
            )
        if policy.separate_value is not None and not self.dueling:
            yield (
                "policy.separate_value: without loss.dueling there is no value to separate; remove "
                "it, or set loss.dueling to true"
            )
        yield from without_effect(
            config,
            {
                "policy.critic": "the policy of dqn is its critic",
                "loss.normalise_advantages": "dqn has no advantages to normalise",
                "loss.normalise_returns": "dqn learns values as they are",
            },
        )
        for index, corrector in enumerate(config.correctors):
            yield (
                f"correctors[{index}] {corrector.name}: the targets of dqn are not corrected; set "
                "correctors to []"
            )


class DQN(Algorithm):
    """Regresses Q(x, a) on the best value behind the transition (Mnih et al. 2015).

    With `double` the newest weights choose that action and the target network values it (van
    Hasselt et al. 2016). The loss of each step is Huber's of the error, times its weight.
    """

    config_model = DQNConfig
    needs = frozenset()

    @override
    def losses(
        self,
        batch: Batch,
        networks: Networks,
        targets: Networks,
        rng: Generator,
        config: DQNConfig,
    ) -> Mapping[str, LossSums]:
        import torch

        taken = {name: leaf[0] for name, leaf in batch.observations.items()}
        values = networks.step(taken).parameters.float()
        value = values.gather(1, batch.actions[0].unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            error = self._targets(batch, networks, targets, config) - value
        loss = torch.nn.functional.huber_loss(
            value, error + value.detach(), reduction="none", delta=config.huber_delta
        ).unsqueeze(0)
        if batch.weights is not None:
            loss = loss * batch.weights
        total = batch.of_valid(loss).sum()
        metrics = {"value_loss": total, "q_mean": batch.of_valid(value.unsqueeze(0)).sum()}
        return {"all": LossSums(total, metrics, error.unsqueeze(0))}

    def _targets(
        self, batch: Batch, networks: Networks, targets: Networks, config: DQNConfig
    ) -> Tensor:
        """Rewards and the discounted value behind them, `[B]`."""
        assert batch.discounts is not None  # a replay memory gives them
        reached = {name: leaf[1] for name, leaf in batch.observations.items()}
        values = targets.step(reached).parameters.float()
        preferred = networks.step(reached).parameters.float() if config.double else values
        if batch.masks is not None:
            preferred = preferred.masked_fill(~batch.masks[1], -float("inf"))
        best = preferred.argmax(1, keepdim=True)
        return batch.rewards[0] + batch.discounts[0] * values.gather(1, best).squeeze(1)
