"""Where the roles of a run get their processes: this machine, or a Ray cluster."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.launch import RoleCommand, StopFlag
from aclearn.launch.fork_server import ForkServer
from aclearn.launch.role_process import Process, RoleProcess
from services.launcher.role_commands import PROGRAM, monitor_addresses
from services.start.temporary_directory import socket_directory

Note = Callable[[str], object]

#: Name on the command line → "module:function" that opens the place.
PLACES = {
    "local": "services.launcher.place:open_this_machine",
    "ray": "services.launcher.ray_place:open_ray",
}


class Place(Protocol):
    """Where roles run.

    Attributes:
        bound: the monitor's address to bind.
        monitor: the monitor's address for the others.
        config: of the run, as roles of this machine read it.
        overrides: key=value pairs that each role gets.
        config_path: of the configuration where a role runs; None for the run folder's.
    """

    bound: str
    monitor: str
    config: Config
    overrides: tuple[str, ...]
    config_path: str | None

    def kept(self, config: Config) -> Config:
        """`config` for the run folder: without what is true of this place only."""

    def open_files(self, config_yaml: bytes) -> None:
        """Take the run's configuration, for roles elsewhere."""

    def start(self, command: RoleCommand, restarts: int) -> Process:
        """Start a role."""

    def actors(self, tuned: int | None, note: Note) -> int | None:
        """The number of actors that there should be now; None for those that there are.

        Args:
            tuned: the number that the monitor wants, if any.
            note: gets sentences for the console.
        """


def open_place(on: str, config: Config, stop: StopFlag) -> AbstractContextManager[Place | None]:
    """The place of that name; None if `stop` was set before it is known.

    Raises:
        ConfigError: there is none.
        AclearnError: it cannot be used.
    """
    if on not in PLACES:
        raise ConfigError(f"--on: {on!r} is unknown; expected one of {', '.join(PLACES)}")
    module, _, name = PLACES[on].partition(":")
    opened: AbstractContextManager[Place | None] = getattr(importlib.import_module(module), name)(
        config, stop
    )
    return opened


class ThisMachine:
    """Processes of this machine.

    Args:
        start: starts one, given its command and the number of its earlier starts.
    """

    overrides: tuple[str, ...] = ()
    config_path: str | None = None

    def __init__(
        self,
        config: Config,
        start: Callable[[RoleCommand, int], Process],
        bound: str,
        monitor: str,
    ) -> None:
        self.config, self.bound, self.monitor = config, bound, monitor
        self._start = start

    def kept(self, config: Config) -> Config:
        """`config` itself."""
        return config

    def open_files(self, config_yaml: bytes) -> None:
        """Nothing: the roles read the run folder."""

    def start(self, command: RoleCommand, restarts: int) -> Process:
        """A fork of a child of this process, or a child."""
        return self._start(command, restarts)

    def actors(self, tuned: int | None, note: Note) -> int | None:
        """What the monitor wants."""
        return tuned


@contextmanager
def open_this_machine(config: Config, stop: StopFlag) -> Iterator[ThisMachine]:
    """This machine, with a directory for sockets."""
    with socket_directory(stop) as directory:
        addresses = monitor_addresses(config, directory)
        if config.run.deterministic:  # one process has every role
            yield ThisMachine(config, RoleProcess, *addresses)
            return
        # it imports while the environment is tried
        with ForkServer("services.forked", PROGRAM) as forks:
            yield ThisMachine(config, forks.start, *addresses)
