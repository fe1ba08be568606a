"""Health of a role: it updates a small file, which `aclearn health` reads.

Only roles with `ACLEARN_RUNTIME_DIR` in their environment, as in a container, have a file. A role
removes it when it ends; a remaining file means that its process died.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:  # a health check needs neither
    from aclearn.config import Config
    from services.roles import RoleSpec

#: Environment variable with the folder of these files.
RUNTIME_DIR_VARIABLE = "ACLEARN_RUNTIME_DIR"
#: Seconds between two writes while nothing has changed.
_WRITE_EVERY_S = 1.0
#: Reasons to wait, before the role knows its peers.
WAITS_FOR_START, WAITS_FOR_MONITOR = "its own start", "the monitor"
#: The same after an error.
FAILED = "its next start, since it has failed"


@dataclass(frozen=True)
class HealthReport:
    """The newest report of a role.

    Attributes:
        at: time of the report, in seconds of the machine's monotonic clock.
        silent_after_s: silence after which it counts as hung, in seconds.
        waits_for: the missing requirement, as text; empty while it works.
        rss_bytes: resident memory of the process.
        heard_monitor: whether the monitor has ever answered this process.
    """

    name: str
    pid: int
    at: float
    silent_after_s: float
    waits_for: str
    restarts: int
    rss_bytes: int
    heard_monitor: bool


class HealthFile:
    """Keeps one role's report up to date, in a `with` block around the role's whole life.

    Disk errors are ignored.

    Args:
        needs: the roles that it cannot work without.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        needs: Sequence[str],
        silent_after_s: float,
        restarts: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.needs = name, needs
        self._silent_after_s, self._restarts, self._clock = silent_after_s, restarts, clock
        self._path = directory / f"{name.partition('-')[0]}-{os.getpid()}.json"
        self._process = psutil.Process()
        self._said_at = float("-inf")
        self._heard_monitor = False

    def say(self, waits_for: Callable[[], str]) -> None:
        """Write the reason to wait, empty while it works; at most once a second."""
        now = self._clock()
        if now - self._said_at < _WRITE_EVERY_S:
            return
        self._said_at, waits = now, waits_for()
        self._heard_monitor |= waits not in (WAITS_FOR_START, WAITS_FOR_MONITOR, FAILED)
        report = HealthReport(
            self.name,
            os.getpid(),
            now,
            self._silent_after_s,
            waits,
            self._restarts,
            self._process.memory_info().rss,
            self._heard_monitor,
        )
        aside = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps(asdict(report)), encoding="utf-8")
            aside.replace(self._path)
        except OSError:
            return  # the health check sees the old report

    def close(self) -> None:
        """Remove the file: the role ended in order."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def __enter__(self) -> HealthFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._said_at = float("-inf")
            self.say(lambda: FAILED)


def open_health(config: Config, spec: RoleSpec, name: str, restarts: int) -> HealthFile | None:
    """The health file of a role that starts; None without a folder."""
    directory = os.environ.get(RUNTIME_DIR_VARIABLE)
    if not directory:
        return None
    file = HealthFile(
        Path(directory).absolute(),  # an environment may change the working directory
        name,
        needs=spec.needs(config),
        silent_after_s=config.monitor.silent_after_s,
        restarts=restarts,
    )
    file.say(lambda: WAITS_FOR_START)
    return file


def missing_role(needs: Sequence[str], there: Collection[str]) -> str:
    """The first missing role of `needs`, as text; empty if all are there."""
    return next((f"a {role}" for role in needs if role not in there), "")
