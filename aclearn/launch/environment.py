"""Environment variables by which a command tells its roles how they were started."""

from __future__ import annotations

PARENT_PID_VARIABLE = "ACLEARN_PARENT_PID"
"""Environment variable in which a child finds the pid of the supervisor that started it."""

RESTARTS_VARIABLE = "ACLEARN_RESTARTS"
"""Environment variable in which a child finds how often it was started before."""
