"""Runs one role in this process; gives its exit status."""

from __future__ import annotations

import logging
import os
import pkgutil
import secrets
import sys
from contextlib import nullcontext
from typing import NoReturn

from aclearn.config import Config
from aclearn.extensions import search_modules_in
from aclearn.launch import (
    PARENT_PID_VARIABLE,
    RESTARTS_VARIABLE,
    StopFlag,
    allow_many_connections,
    lower_priority,
)
from aclearn.launch.resources import keep_freed_memory
from services.role.context import RoleContext, RunEnv, Start
from services.role.health import open_health
from services.role.loop import run_to_end
from services.role.monitor_client import NumberTaken, exit_status
from services.role.name import ask_number, number_in
from services.roles import MONITOR, RoleSpec
from services.start.folder import role_folder
from services.start.preflight import check_role
from services.start.temporary_directory import remove_if_orphaned

_LOGGER = logging.getLogger(__name__)


def end_process(status: int) -> NoReturn:
    """End the process of a role that has closed its sockets and files.

    The interpreter's own exit destroys torch's objects one by one: up to a second on a busy core,
    of the ten seconds for the end of a run.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run_role(
    spec: RoleSpec,
    name: str | None,
    config: Config,
    monitor: str,
    stop: StopFlag,
    *,
    contained: bool = False,
    forced: bool = False,
    note: str = "",
) -> int:
    """Run one role to its end; returns its exit status. Without a name the monitor gives a number.

    A monitor's status is always 0, even after a signal: it has ended the run.

    Raises:
        ConfigError: the name is not the role and a number.
    """
    number = None if name is None else number_in(spec, name)
    if spec.single:
        number = 0
    config = config.named_by_seed()
    search_modules_in(config.run.pythonpath)
    restarts = int(os.environ.get(RESTARTS_VARIABLE, "0"))
    supervised = PARENT_PID_VARIABLE in os.environ
    allow_many_connections()
    while True:
        health = open_health(config, spec, name or spec.name, restarts)
        start = Start(
            restarts if supervised else secrets.randbits(32),
            health,
            note=note,
            contained=contained,
            number_given=number is None,
            forced=forced,
        )
        context = RoleContext(spec.name, number or 0, config, RunEnv(monitor), stop, start=start)
        with health or nullcontext():
            try:
                return _run(context, spec)
            except NumberTaken as taken:
                # start again: seeds, environments and sockets depend on the number
                _LOGGER.warning("event=number_taken reason=%r", str(taken))
            finally:
                context.close()
                remove_if_orphaned(monitor)


def _run(context: RoleContext, spec: RoleSpec) -> int:
    context.run.env_spec = check_role(context)
    if context.stop and spec.needs_environment:  # the monitor's answer has the reason
        return exit_status(context.stop, run_is_over=False)
    # a role that writes nothing may be on a machine without the folder
    context.run.folder = role_folder(context.config, spec.name) if spec.needs_folder else None
    if context.start.number_given:
        number = ask_number(context)
        if number is None:
            return exit_status(context.stop, run_is_over=False)
        context.index = number
    if context.start.health is not None:
        context.start.health.name = context.name
    if spec is not MONITOR:  # the monitor needs little memory
        keep_freed_memory()
    make = pkgutil.resolve_name(spec.entry_point)
    lower_priority(spec.nice(context.config))
    return run_to_end(make(context))
