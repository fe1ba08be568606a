"""Checks that need torch: configured GPUs, and a user's own loss and correctors.

Torch takes seconds to load, and the user's modules may do anything, so a command that only starts
roles makes them in another process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aclearn.config import Config, config_from_yaml
from aclearn.errors import AclearnError, ConfigError
from aclearn.extensions import search_modules_in
from aclearn.launch import StopFlag
from services.role import isolated
from services.roles import PREDICTOR

if TYPE_CHECKING:
    import torch

#: Seconds for loading torch and the user's modules, and for finding the GPUs.
_WITHIN_S = 120.0
#: Environments of gymnasium that we have as resident ones: not checked, which saves seconds.
_RESIDENT_IDS = frozenset(
    {"CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0"}
)


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


def amp_elsewhere(config: Config, *, stop: StopFlag | None = None) -> str | None:
    """What `trainer.amp: auto` stands for with large images.

    None if the answer takes too long, or `stop` was set meanwhile.
    """
    answer = isolated.call(
        "services.role.torch_checks:say_amp",
        {"yaml": config.to_yaml()},
        within_s=_WITHIN_S,
        stop=stop,
    )
    return answer.said.get("amp")


def say_amp(say: isolated.Say, yaml: str) -> None:
    """Say what `trainer.amp: auto` stands for on the trainer's device."""
    import torch

    from aclearn.policies.devices import choose_amp

    names = {None: "off", torch.bfloat16: "bf16"}
    say(amp=names[choose_amp("auto", _trainer_device(config_from_yaml(yaml)))])


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


def check_with_torch_elsewhere(config: Config, *, stop: StopFlag | None = None) -> None:
    """Both checks in another process, if a device or a user's own class is configured.

    `stop`, set by signals, ends the wait.

    Raises:
        ConfigError: names the key.
    """
    named = config.trainer.device.startswith("cuda")
    if predictor_computes_in_torch(config):
        named |= config.predictor.device.startswith("cuda")
    names = [config.loss.kind, *(corrector.name for corrector in config.correctors)]
    named |= any(":" in name for name in names)
    if not named and not _may_not_be_resident(config):
        return
    answer = isolated.call(
        "services.role.torch_checks:say_refusal",
        {"yaml": config.to_yaml()},
        within_s=_WITHIN_S,
        stop=stop,
    )
    # a slow driver or module says nothing: the roles have more time
    if "refusal" in answer.said:
        raise ConfigError(answer.said["refusal"])


def say_refusal(say: isolated.Say, yaml: str) -> None:
    """Say why the trainer or the predictors cannot learn or compute here, if so."""
    config = config_from_yaml(yaml)
    search_modules_in(config.run.pythonpath)
    try:
        check_learning(config)
        check_predictor_device(config)
    except AclearnError as error:
        say(refusal=str(error))


def _may_not_be_resident(config: Config) -> bool:
    """Whether Warp has to be loaded to know that the resident environment and device are there."""
    resident = config.resident
    ours = resident.env is None and config.env.id in _RESIDENT_IDS
    return resident.envs is not None and not (ours and resident.device in ("auto", "cpu"))


def predictor_computes_in_torch(config: Config) -> bool:
    """Whether there are predictors that run the uncompressed policy in torch."""
    asked = PREDICTOR.processes(config) > 0 and not config.compressor.rungs
    return asked and PREDICTOR.imports_torch(config)
