"""Whether Kubernetes can express a configuration: its name and its devices."""

from __future__ import annotations

import re
from typing import Final

from aclearn.config import Config
from aclearn.errors import ConfigError

#: Longest name of a run: objects and pods of at most 63 letters have it and a suffix.
LONGEST_NAME: Final = 45
_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?", re.ASCII)


def check_name(name: str) -> None:
    """Raise `ConfigError` unless the objects of a run may have this name."""
    if _LABEL.fullmatch(name) and len(name) <= LONGEST_NAME:
        return
    mended = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:LONGEST_NAME]
    raise ConfigError(
        f"run.name: Kubernetes refuses {name!r} as the name of an object; expected at most "
        f"{LONGEST_NAME} lower-case letters, digits and -, from a letter to a letter or digit; set "
        f"for instance run.name={mended.strip('-') or 'run'}"
    )


def check_files(config: Config) -> None:
    """Raise `ConfigError` if a run begins with weights of this machine."""
    for key, path in [("run.init_from", config.run.init_from)] + [
        (f"policies.{name}.init_from", own.init_from) for name, own in config.policies.items()
    ]:
        if path is not None:
            raise ConfigError(f"{key}: pods do not have {path}; set it to null")


def check_run(config: Config) -> None:
    """Raise `ConfigError` unless pods can run this configuration as one run."""
    if config.run.deterministic:
        raise ConfigError(
            "run.deterministic: a single process runs all roles, so pods have nothing to do; set "
            "it to false, or run `aclearn train` on one machine"
        )
    if config.ranks > 1:
        key = "trainer.processes" if config.resident.envs is None else "resident.devices"
        raise ConfigError(
            f"{key}: {config.ranks} trainers share one run folder and find each other on one "
            "machine, which these manifests do not express; set it to 1"
        )


def gpus(device: str, key: str) -> int:
    """Number of GPUs that the pod of a process on this device asks for.

    Raises:
        ConfigError: a pod cannot have this device.
    """
    kind, _, index = device.partition(":")
    if int(index or 0) > 0:
        raise ConfigError(
            f"{key}: {device} cannot be expressed: a pod counts the GPUs that it was given from "
            "cuda:0 on; set it to cuda"
        )
    return int(kind == "cuda")
