"""Checks that need torch: configured GPUs, and a user's own loss and correctors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aclearn.config import Config
from aclearn.config.resident import RESIDENT_ENVS
from services.roles import PREDICTOR

if TYPE_CHECKING:
    import torch


def check_learning(config: Config) -> None:
    """Check a trainer's GPU, number format, loss and correctors. Loads torch.

    Raises:
        ConfigError: names the key.
    """
    from aclearn.learning.objective import make_objective

    if config.resident.envs is not None:
        from aclearn.resident import resident_env_of

        resident_env_of(config)
    _trainer_device(config)
    make_objective(
        config.loss,
        config.correctors,
        behaviour_parameters=config.actors.behaviour_parameters,
        critic=config.policy.critic,
    )


def amp_here(config: Config) -> str:
    """What `trainer.amp: auto` stands for with large images on the trainer's device. Loads torch.

    Raises:
        ConfigError: the GPU does not exist.
    """
    from aclearn.policies.devices import choose_amp

    return "off" if choose_amp("auto", _trainer_device(config)) is None else "bf16"


def _trainer_device(config: Config) -> torch.device:
    """The device that the trainer chooses."""
    from aclearn.policies.devices import choose_device

    if config.resident.envs is not None:
        return choose_device(config.resident.device, key="resident.device")
    return choose_device("cpu" if config.run.deterministic else config.trainer.device)


def check_predictor_device(config: Config) -> None:
    """Check a predictor's GPU on this machine. Loads torch if the predictor does.

    Raises:
        ConfigError: names the key.
    """
    if predictor_computes_in_torch(config):
        from aclearn.policies.devices import choose_device

        choose_device(config.predictor.device, key="predictor.device")


def learning_may_fail(config: Config) -> bool:
    """Whether a GPU or a class of the user's is configured, so that torch has to check it."""
    named = config.trainer.device.startswith("cuda")
    if predictor_computes_in_torch(config):
        named |= config.predictor.device.startswith("cuda")
    names = [config.loss.kind, *(corrector.name for corrector in config.correctors)]
    return named or any(":" in name for name in names) or _may_not_be_resident(config)


def _may_not_be_resident(config: Config) -> bool:
    """Whether Warp has to be loaded to know that the resident environment and device are there."""
    resident = config.resident
    # those that we have need no check, which saves seconds
    ours = resident.env is None and config.env.id in RESIDENT_ENVS.values()
    return resident.envs is not None and not (ours and resident.device in ("auto", "cpu"))


def predictor_computes_in_torch(config: Config) -> bool:
    """Whether there are predictors that run the uncompressed policy in torch."""
    asked = PREDICTOR.processes(config) > 0 and not config.compressor.rungs
    return asked and PREDICTOR.imports_torch(config)
