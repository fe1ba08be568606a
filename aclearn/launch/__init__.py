"""Starts roles as processes, restarts and ends them."""

from __future__ import annotations

from aclearn.launch.parent_death import die_with_parent, parent_is_alive
from aclearn.launch.resources import allow_many_connections, lower_priority
from aclearn.launch.role_command import (
    EXIT_GIVE_UP,
    PARENT_PID_VARIABLE,
    RESTARTS_VARIABLE,
    RoleCommand,
    RoleStatus,
    State,
)
from aclearn.launch.role_process import describe_exit
from aclearn.launch.signals import Interrupted, StopFlag, install_stop_signals, raise_on_ctrl_c
from aclearn.launch.supervisor import Supervisor
