"""Each test gets its own folder and must leave no process and no socket."""

from tests.system.conftest import system

__all__ = ["system"]
