"""Where environments are: their device, and whether its memory holds them."""

from __future__ import annotations

from collections.abc import Mapping

import psutil
import torch

from aclearn.errors import ConfigError
from aclearn.resident.warp_setup import wp

#: Share of the free memory that environments may take.
_MOST_MEMORY = 0.8


def resident_device(name: str) -> torch.device:
    """The device of `resident.device`.

    Raises:
        ConfigError: it is not there.
    """
    from aclearn.policies.devices import choose_device

    device = choose_device(name, key="resident.device")
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        if not wp.is_device_available(str(device)):
            raise ConfigError(
                f"resident.device: Warp does not see {device}, which torch has; is its driver as "
                "new as CUDA 12?"
            )
    return device


def check_memory(terms: Mapping[str, int], *, envs: int, device: torch.device) -> None:
    """Check that environments fit into the free memory.

    Args:
        terms: bytes of each environment, by what needs them.

    Raises:
        ConfigError: they do not; says what needs how much, and how many fit.
    """
    if envs < 1:
        raise ConfigError(f"resident.envs: expected at least 1 environment, got {envs}")
    free = (
        psutil.virtual_memory().available
        if device.type == "cpu"
        else torch.cuda.mem_get_info(device)[0]
    )
    each = sum(terms.values())
    fit = int(free * _MOST_MEMORY) // each
    if envs > fit:
        largest = sorted(terms.items(), key=lambda term: -term[1])
        named = ", ".join(f"{name} {envs * size / 2**30:.1f}" for name, size in largest)
        raise ConfigError(
            f"resident.envs: {envs} environments need {envs * each / 2**30:.1f} GiB of {device} "
            f"({named}), which has {free / 2**30:.1f} GiB free; at most {fit} fit"
        )
