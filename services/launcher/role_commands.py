"""How each role of a local run is started."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from aclearn.config import Config
from aclearn.launch import RoleCommand
from aclearn.runs import RunFolder
from aclearn.wire import tcp_endpoint
from services.roles import MONITOR, ROLES, RoleSpec


def monitor_addresses(config: Config, directory: Path) -> tuple[str, str]:
    """Where the monitor listens, and where the roles of this machine find it.

    That is its configured port, else a socket file in `directory`.
    """
    if config.monitor.port is None:
        address = f"ipc://{directory}/monitor.sock"
        return address, address
    bound = tcp_endpoint(config.network.bind_host, config.monitor.port)
    if not bound.is_wildcard:
        return str(bound), str(bound)
    loopback = "::1" if ":" in bound.host else "127.0.0.1"
    return str(bound), str(tcp_endpoint(loopback, config.monitor.port))


def role_commands(
    config: Config, folder: RunFolder, bound: str, monitor: str, variables: Mapping[str, str]
) -> list[RoleCommand]:
    """How every role of the run is started, the monitor first.

    Args:
        config: of the run.
        folder: of the run.
        bound: where the monitor listens.
        monitor: where the others find it.
        variables: environment variables that every role gets.
    """
    return [
        role_command(config, folder, bound if spec is MONITOR else monitor, spec, index, variables)
        for spec in ROLES.values()
        for index in range(spec.processes(config))
    ]


def role_command(
    config: Config,
    folder: RunFolder,
    monitor: str,
    spec: RoleSpec,
    index: int,
    variables: Mapping[str, str],
) -> RoleCommand:
    """How one role is started."""
    name = f"{spec.name}-{index}"
    arguments = ("role", spec.name, str(folder.config_path), "--monitor", monitor)
    return RoleCommand(
        spec.name,
        name,
        # -P: a folder named services in the current one is not ours
        (sys.executable, "-P", "-m", "services.cli", *arguments, "--name", name),
        # idle pools would fight for the cores
        {"OMP_NUM_THREADS": str(spec.threads(config)), **variables},
        folder.log_path(spec.name, str(index)),
        optional=spec.optional,
    )
