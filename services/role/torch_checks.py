"""Checks that need torch: configured GPUs, and a user's own loss and correctors.

Torch takes seconds to load, and the user's modules may do anything, so a command that only starts
roles makes them in another process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from aclearn.config import Config, config_from_yaml
from aclearn.errors import AclearnError, ConfigError
from aclearn.extensions import search_modules_in
from aclearn.launch import EXIT_GIVE_UP
from aclearn.launch.main_guard import mark_own_process
from services.roles import PREDICTOR

if TYPE_CHECKING:
    import torch

#: Argument with which the other process says what `trainer.amp: auto` stands for.
_AMP = "amp"
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
    from aclearn.policies.devices import choose_amp

    if config.resident.envs is not None:
        from aclearn.resident import resident_env_of

        resident_env_of(config)
    choose_amp(config.trainer.amp, _trainer_device(config))
    make_objective(
        config.loss,
        config.correctors,
        behaviour_parameters=config.actors.behaviour_parameters,
        critic=config.policy.critic,
    )


def amp_elsewhere(config: Config) -> str | None:
    """What `trainer.amp: auto` stands for with large images; None if the answer takes too long."""
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-m", "services.role.torch_checks", _AMP],
            input=config.to_yaml(),
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        return None
    return asked.stdout if asked.returncode == 0 else None


def _amp_of(config: Config) -> str:
    import torch

    from aclearn.policies.devices import choose_amp

    names = {None: "off", torch.bfloat16: "bf16", torch.float16: "fp16"}
    return names[choose_amp("auto", _trainer_device(config))]


def _trainer_device(config: Config) -> torch.device:
    """As the trainer chooses it."""
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


def check_with_torch_elsewhere(config: Config) -> None:
    """Both checks in another process, if a device or a user's own class is configured.

    Raises:
        ConfigError: names the key.
    """
    named = config.trainer.device.startswith("cuda") or config.trainer.amp == "fp16"
    if predictor_computes_in_torch(config):
        named |= config.predictor.device.startswith("cuda")
    names = [config.loss.kind, *(corrector.name for corrector in config.correctors)]
    named |= any(":" in name for name in names)
    if not named and not _may_not_be_resident(config):
        return
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-m", "services.role.torch_checks"],
            input=config.to_yaml(),
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        return  # a slow driver or module: the roles have more time
    if asked.returncode == EXIT_GIVE_UP:
        raise ConfigError(asked.stdout.strip())


def _may_not_be_resident(config: Config) -> bool:
    """Whether Warp has to be loaded to know that the resident environment and device are there."""
    resident = config.resident
    ours = resident.env is None and config.env.id in _RESIDENT_IDS
    return resident.envs is not None and not (ours and resident.device in ("auto", "cpu"))


def predictor_computes_in_torch(config: Config) -> bool:
    """Whether there are predictors that run the uncompressed policy in torch."""
    asked = PREDICTOR.processes(config) > 0 and not config.compressor.rungs
    return asked and PREDICTOR.imports_torch(config)


def main() -> int:
    """Check the configuration on standard input; returns the exit status and prints the reason.

    With the argument `amp`, print what `trainer.amp: auto` stands for instead.
    """
    # the user's modules print to standard error
    answer = os.dup(1)
    os.dup2(2, 1)
    config = config_from_yaml(sys.stdin.read())
    search_modules_in(config.run.pythonpath)
    try:
        if sys.argv[1:] == [_AMP]:
            os.write(answer, _amp_of(config).encode())
            return 0
        check_learning(config)
        check_predictor_device(config)
    except AclearnError as error:
        os.write(answer, str(error).encode())
        return EXIT_GIVE_UP
    return 0


if __name__ == "__main__":
    mark_own_process()
    sys.exit(main())
