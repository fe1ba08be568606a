"""Valid configurations in which a setting has no effect, or an unexpected one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aclearn.config.loss import A2CConfig, IMPACTConfig, PPOConfig

if TYPE_CHECKING:
    from aclearn.config.model import Config


def doubts(config: Config) -> Iterator[str]:
    """One sentence for each of them; it starts with the dotted key to change."""
    loss, trainer, optimiser = config.loss, config.trainer, config.optimiser
    sole = trainer.epochs * trainer.minibatches == 1
    if isinstance(loss, IMPACTConfig):
        newest = loss.target_update_every == 1 and loss.target_update_rate == 1.0
        centre, sole = "the target network", sole and newest
    else:
        centre = "the policy before the batch"
    if isinstance(loss, PPOConfig) and sole:
        yield (
            "trainer.epochs: with one update a batch (trainer.minibatches: 1) every ratio to "
            f"{centre} is 1, so that loss.clip_range never acts; set this to "
            f"{loss.usual['trainer.epochs']} or so, and that to "
            f"{loss.usual['trainer.minibatches']}, or take loss.kind: actor_critic"
        )
    if isinstance(loss, PPOConfig) and loss.target_kl is not None and trainer.epochs == 1:
        yield (
            "loss.target_kl: it leaves out the epochs that remain, and trainer.epochs is 1; raise "
            "that, or set this to null"
        )
    if isinstance(loss, A2CConfig) and trainer.epochs > 1:
        yield (
            f"trainer.epochs: a2c learns each of {trainer.epochs} passes as if the newest policy "
            "had acted; set it to 1, or take loss.kind: ppo or actor_critic"
        )
    most = config.run.max_env_steps
    if optimiser.schedule == "linear" and most and most > (optimiser.schedule_steps or most):
        yield (
            f"optimiser.schedule_steps: the rate is 0 after {optimiser.schedule_steps} of "
            f"run.max_env_steps: {most}, so that nothing is learned of the rest; set it to {most}"
        )
    if optimiser.schedule == "constant" and optimiser.schedule_steps is not None:
        yield (
            "optimiser.schedule_steps: it has no effect while optimiser.schedule is constant; set "
            "that to linear, or this to null"
        )
