"""Start roles as processes, keep them alive, and end every one of them."""

from __future__ import annotations

from aclearn.launch.budget import RestartBudget
from aclearn.launch.command import (
    EXIT_GIVE_UP,
    PARENT_PID_VARIABLE,
    RESTARTS_VARIABLE,
    RoleCommand,
)
from aclearn.launch.lifetime import die_with_parent, parent_is_alive
from aclearn.launch.limits import allow_many_connections
from aclearn.launch.logtail import log_tail
from aclearn.launch.priority import stand_back
from aclearn.launch.process import describe_exit
from aclearn.launch.signals import (
    Interrupted,
    StopFlag,
    install_stop_signals,
    raise_on_ctrl_c,
)
from aclearn.launch.supervisor import Event, RoleStatus, State, Supervisor

__all__ = [
    "EXIT_GIVE_UP",
    "PARENT_PID_VARIABLE",
    "RESTARTS_VARIABLE",
    "Event",
    "Interrupted",
    "RestartBudget",
    "RoleCommand",
    "RoleStatus",
    "State",
    "StopFlag",
    "Supervisor",
    "allow_many_connections",
    "describe_exit",
    "die_with_parent",
    "install_stop_signals",
    "log_tail",
    "parent_is_alive",
    "raise_on_ctrl_c",
    "stand_back",
]
