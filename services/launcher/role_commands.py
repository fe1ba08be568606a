"""Command lines of a local run's roles."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aclearn.config import Config
from aclearn.launch import RoleCommand
from aclearn.runs import RunFolder
from aclearn.wire import tcp_endpoint
from services.roles import RoleSpec

#: The start of each command line. -P: a folder named services in the current directory must not
#: shadow ours.
PROGRAM: Final = (sys.executable, "-P", "-m", "services.cli")


def monitor_addresses(config: Config, directory: Path) -> tuple[str, str]:
    """The monitor's address to bind, and its address for roles of this machine.

    It is the configured port, else a socket file in `directory`.
    """
    if config.monitor.port is None:
        address = f"ipc://{directory}/monitor.sock"
        return address, address
    bound = tcp_endpoint(config.network.bind_host, config.monitor.port)
    if not bound.is_wildcard:
        return str(bound), str(bound)
    loopback = "::1" if ":" in bound.host else "127.0.0.1"
    return str(bound), str(tcp_endpoint(loopback, config.monitor.port))


def role_command(
    config: Config,
    folder: RunFolder,
    monitor: str,
    spec: RoleSpec,
    index: int,
    variables: Mapping[str, str],
    *,
    config_path: str | None = None,
    overrides: Sequence[str] = (),
) -> RoleCommand:
    """The command of one role.

    Args:
        monitor: the monitor's address, for a monitor to bind and for others to connect to.
        config_path: of the configuration where the role runs; None for the run folder's.
        overrides: key=value pairs of this role.
    """
    name = f"{spec.name}-{index}"
    path = str(folder.config_path) if config_path is None else config_path
    arguments = ("role", spec.name, path, *overrides, "--monitor", monitor)
    return RoleCommand(
        spec.name,
        name,
        (*PROGRAM, *arguments, "--name", name),
        # idle thread pools would compete for the cores
        {"OMP_NUM_THREADS": str(spec.threads(config)), **variables},
        folder.log_path(spec.name, str(index)),
        optional=spec.optional,
    )
