"""No run starts while one of aclearn's own processes imports the user's module.

Every process of a run imports the environment's module. If that module is a script that trains
without a guard, each process would start a run of its own, and so on without end.
"""

from __future__ import annotations

from aclearn.errors import AclearnError

_ours = False


def mark_own_process() -> None:
    """Say that this process was started by aclearn, or by its command line."""
    global _ours
    _ours = True


def refuse_in_own_process(function: str) -> None:
    """Raise `AclearnError` if the caller of `function` is a module that aclearn imports."""
    if _ours:
        raise AclearnError(
            f"{function} was called while a process of aclearn imported this module; put the call "
            'under `if __name__ == "__main__":`, or the environment into a file of its own'
        )
