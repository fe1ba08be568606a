"""What the container of a role runs and finds, in docker-compose.yml and in Kubernetes."""

from __future__ import annotations

from typing import Final

from services.roles import RoleSpec

#: Port of each server of a role in its container.
PORTS: Final = {
    "monitor": 5555,
    "unrolls": 5556,
    "weights": 5557,
    "predictions": 5558,
    "artifacts": 5559,
}
#: Folders of a container: the current one, runs, keys, compiled kernels.
WORK, RUNS, KEYS, KERNELS = "/work", "/work/runs", "/keys", "/var/cache/aclearn"
#: Restarts of a container that ends with an error.
MOST_RESTARTS: Final = 10
#: CPU of the roles that leave it to the others where it is scarce, in shares of 1024.
BEHIND_SHARES: Final = 341


def role_arguments(spec: RoleSpec, config: str, monitor: str) -> list[str]:
    """Arguments of `aclearn` in the container of a role.

    Args:
        config: path of the configuration in the container.
        monitor: address of the monitor; it listens at the same port of all its addresses.
    """
    listens = f"tcp://0.0.0.0:{PORTS['monitor']}"
    address = listens if spec.name == "monitor" else monitor
    return ["container", "role", spec.name, config, "--monitor", address]
