"""A member's part in one round: its run goes on, and its newest policy is judged.

`python -m services.population.member FOLDER MEMBER ROUND` is the process of it that engines start.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from aclearn.config import load_config
from aclearn.errors import AclearnError, words_of
from aclearn.files import disk_is_full
from aclearn.launch import StopFlag, die_with_parent, install_stop_signals
from aclearn.launch.main_guard import mark_own_process
from aclearn.population import DEAD
from aclearn.runs import is_locked, write_atomically
from services.monitor.run_clock import STARTED_AT_VARIABLE, moment
from services.population.engine import EXIT_DISK_FULL, DiskFull, Outcome
from services.population.fitness import NotFinite, fitness_of
from services.population.inheriting import steps_in

_LOGGER = logging.getLogger(__name__)

#: The outcome of a member's last round, in its folder.
ROUND_FILE: Final = "round.json"
#: Words of an error that says that numbers have overflowed.
_DIVERGED: Final = ("not finite", "nonfinite_gradient")
#: Seconds for the processes of a killed predecessor to end.
_FREE_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.1


def train_round(folder: Path, member: int, round_: int, stop: StopFlag) -> Outcome | None:
    """Continue a member's run to the end of the round, and judge it.

    A round that was begun before is continued from its newest checkpoint. The outcome is in the
    folder when this returns; see `read_outcome`.

    Returns:
        The outcome, also of a member that has diverged or cannot be trained; None if `stop` was set
        before; the run has a checkpoint then.

    Raises:
        DiskFull: its checkpoint or its outcome cannot be written.
    """
    # imported here: it takes a while
    from services.launcher.local_run import train

    os.environ.setdefault(STARTED_AT_VARIABLE, str(moment(time.monotonic())))
    config = load_config(folder / "config.yaml")

    def go_on() -> None:
        wait_until_free(folder, stop)
        if steps_in(folder) < (config.run.max_env_steps or 0) and not stop:
            ending = train(config, resume=True, stop=stop)
            if ending is not None and not stop:
                ending.checked_summary()

    return judged(folder, member, round_, stop, go_on)


def judged(
    folder: Path, member: int, round_: int, stop: StopFlag, go_on: Callable[[], None]
) -> Outcome | None:
    """The outcome of a member's round, which is in the folder then; None if `stop` was set.

    Args:
        go_on: continues its run to the end of the round; an error of it is that of the member.

    Raises:
        DiskFull: its checkpoint or its outcome cannot be written.
    """
    try:
        go_on()
        if stop:
            return None
        outcome = Outcome(member, "trained", *fitness_of(folder, stop))
    except Exception as error:  # in lock-step the user's code runs here
        if stop:
            return None
        if disk_is_full(error):
            raise DiskFull(folder) from error
        _LOGGER.exception("event=member_died")
        diverged = _diverged(error)
        status = "failed" if diverged is None else "diverged"
        outcome = dead(folder, member, status, diverged or words_of(error))
    try:
        write_outcome(folder, round_, outcome)
    except OSError as error:
        if disk_is_full(error):
            raise DiskFull(folder) from error
        raise
    return outcome


def _diverged(error: BaseException) -> str | None:
    """The line of an error, or of its cause, that says that numbers have overflowed, if any."""
    cause: BaseException | None = error
    while cause is not None:
        for line in str(cause).splitlines():
            if isinstance(cause, NotFinite) or any(word in line for word in _DIVERGED):
                return line
        cause = cause.__cause__ or cause.__context__
    return None


def dead(folder: Path, member: int, status: Any, detail: str, restarts: int = 0) -> Outcome:
    """The outcome of a member that has died."""
    try:
        steps = steps_in(folder)
    except AclearnError:  # its checkpoints are damaged, which may be why
        steps = 0
    return Outcome(member, status, DEAD, env_steps=steps, detail=detail, restarts=restarts)


def write_outcome(folder: Path, round_: int, outcome: Outcome) -> None:
    """Write what has become of a member into its folder: a driver that is killed finds it there."""
    fitness = None if outcome.fitness == DEAD else outcome.fitness
    document = {"round": round_, "outcome": {**asdict(outcome), "fitness": fitness}}
    write_atomically(folder / ROUND_FILE, json.dumps(document).encode())


def read_outcome(folder: Path, round_: int) -> Outcome | None:
    """The outcome of this round in a member's folder; None if it is not over there."""
    try:
        document = json.loads((folder / ROUND_FILE).read_bytes())
        if document["round"] != round_:
            return None
        outcome = document["outcome"]
        fitness = DEAD if outcome["fitness"] is None else outcome["fitness"]
        return Outcome(**{**outcome, "fitness": fitness})
    except (OSError, ValueError, KeyError, TypeError):  # it is trained again
        return None


def wait_until_free(folder: Path, stop: StopFlag) -> None:
    """Wait for the roles of a killed predecessor, which end by themselves."""
    deadline = time.monotonic() + _FREE_WITHIN_S
    while is_locked(folder) and time.monotonic() < deadline and not stop:
        time.sleep(_LOOK_EVERY_S)


def main() -> None:
    """The process of one member and round."""
    folder, member, round_ = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    mark_own_process()
    with install_stop_signals() as stop:
        die_with_parent()
        try:
            outcome = train_round(folder, member, round_, stop)
        except DiskFull as error:
            with suppress(OSError):  # the log may be on the same disk
                print(f"aclearn: {error}", file=sys.stderr, flush=True)
            os._exit(EXIT_DISK_FULL)  # without the flushes of an exit, which would fail
    if outcome is None:
        sys.exit(stop.exit_status)


if __name__ == "__main__":
    main()
