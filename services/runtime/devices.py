"""Whether the configured GPUs are there.

Torch knows, and takes seconds to load: a command that only starts roles asks it in another process.
"""

from __future__ import annotations

import subprocess
import sys

from aclearn.config import Config, config_from_yaml
from aclearn.errors import ConfigError
from aclearn.launch import EXIT_GIVE_UP

#: Seconds that torch may take to be loaded and to find the GPUs.
_WITHIN_S = 120.0


def check_trainer_device(config: Config) -> None:
    """Refuse a trainer's GPU or number format that this machine does not have. Loads torch.

    Raises:
        ConfigError: names the key.
    """
    from aclearn.policies.devices import choose_amp, choose_device

    # as the trainer does
    device = choose_device("cpu" if config.run.deterministic else config.trainer.device)
    choose_amp(config.trainer.amp, device)


def check_predictor_device(config: Config) -> None:
    """Refuse a predictor's GPU that this machine does not have. Loads torch if the predictor does.

    Raises:
        ConfigError: names the key.
    """
    if _predictor_computes_in_torch(config):
        from aclearn.policies.devices import choose_device

        choose_device(config.predictor.device, key="predictor.device")


def check_devices_elsewhere(config: Config) -> None:
    """Both checks, without torch in this process; costs nothing where no device is named.

    Raises:
        ConfigError: names the key.
    """
    named = config.trainer.device.startswith("cuda") or config.trainer.amp == "fp16"
    if _predictor_computes_in_torch(config):
        named |= config.predictor.device.startswith("cuda")
    if not named:
        return
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-m", "services.runtime.devices"],
            input=config.to_yaml(),
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
        )
    except subprocess.TimeoutExpired:
        return  # a driver that is slow to wake: the roles have more time
    if asked.returncode == EXIT_GIVE_UP:
        raise ConfigError(asked.stdout.strip())


def _predictor_computes_in_torch(config: Config) -> bool:
    asked = config.actors.inference == "predictor" and not config.compressor.chain
    return asked and config.predictor.runtime != "onnx"


def main() -> int:
    """Check the configuration on standard input; the exit status, with the reason on output."""
    config = config_from_yaml(sys.stdin.read())
    try:
        check_trainer_device(config)
        check_predictor_device(config)
    except ConfigError as error:
        print(error)
        return EXIT_GIVE_UP
    return 0


if __name__ == "__main__":
    sys.exit(main())
