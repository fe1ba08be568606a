"""`aclearn profile`: runs all roles for a while and measures the cost of an agent step."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import psutil

from aclearn.config import Config, load_config
from aclearn.errors import AclearnError, ConfigError
from aclearn.launch import StopFlag
from aclearn.metrics.formatting import printable
from aclearn.telemetry.cores import usable_cores
from services.commands.step_profile import Snapshot, StepProfile, step_profile
from services.launcher.local_run import train
from services.start.temporary_directory import PROFILE, temporary_directory

#: Longest profile, in seconds.
MOST_SECONDS = 3600.0
#: Unmeasured seconds after the first learned batch, in which caches and allocators fill.
WARM_UP_S = 5.0
#: Seconds for the roles to start, besides the measurement.
_START_WITHIN_S = 600.0
_RUN_NAME = "profile"
_DONE = "the profile is complete"


def load_profiled(
    config: str | Path, overrides: Sequence[str], folder: Path, seconds: float
) -> Config:
    """The configuration with a run in `folder` and only a distant end.

    Raises:
        ConfigError: it cannot be used, or is deterministic: lock-step has no processes to measure.
    """
    loaded = load_config(config, overrides).with_run(
        dir=str(folder),
        name=_RUN_NAME,
        target_return=None,
        max_env_steps=None,
        max_updates=None,
        max_wall_s=_START_WITHIN_S + WARM_UP_S + 2 * seconds,
        metrics_every_s=0.5,
    )
    if loaded.run.deterministic:
        raise ConfigError(
            "run.deterministic: lock-step runs everything in one process, without processes to "
            "measure; profile with run.deterministic=false"
        )
    return loaded


class ProfileWatch:
    """Watches a run as its console, takes two snapshots, and ends the run after the second.

    Args:
        warm_up_s: from the first learned batch to the first snapshot.
    """

    def __init__(self, seconds: float, *, warm_up_s: float, stop: StopFlag, stream: TextIO) -> None:
        self._seconds, self._warm_up_s = seconds, warm_up_s
        self._stop, self._stream = stop, stream
        self._learned_since_s: float | None = None
        self._restarts = 0
        self.first: Snapshot | None = None
        self.last: Snapshot | None = None
        self.notes: list[str] = []

    def __enter__(self) -> ProfileWatch:
        self._say("starting every role")
        return self

    def __exit__(self, *_: object) -> None:
        return

    def update(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> None:
        """Take a snapshot when due."""
        if self.last is not None or not line.get("learned_steps"):
            return
        now_s = float(line["time_s"])
        if self._learned_since_s is None:
            self._learned_since_s = now_s
            self._say(f"learning; measuring {self._seconds:g} s after {self._warm_up_s:g} s")
        if now_s - self._learned_since_s < self._warm_up_s:
            return
        restarts = sum(int(role.get("restarts") or 0) for role in roles)
        if self.first is None:
            self.first, self._restarts = self._look(line, roles), restarts
        elif now_s - float(self.first.line["time_s"]) >= self._seconds:
            self.last = self._look(line, roles)
            if restarts > self._restarts:
                self.notes.append("a role was restarted while it was measured")
            self._stop.set(_DONE)

    def note(self, text: str) -> None:
        """Show an event."""
        if self.last is None:
            self._say(printable(text))

    def _look(self, line: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> Snapshot:
        cpu_s = {}
        for role in roles:
            if not role.get("pid"):
                continue  # it is being restarted, which is reported
            try:
                times = psutil.Process(int(role["pid"])).cpu_times()
            except psutil.Error:
                continue  # as above
            cpu_s[str(role["name"])] = times.user + times.system
        cpu_s["command"] = time.process_time()
        return Snapshot(time.monotonic(), line, cpu_s)

    def _say(self, text: str) -> None:
        print(f"profile: {text}", file=self._stream, flush=True)


def profile(
    config: str | Path,
    overrides: Sequence[str],
    *,
    seconds: float,
    stop: StopFlag,
    stream: TextIO,
    warm_up_s: float | None = None,
) -> StepProfile | None:
    """Run `config` in a temporary folder and measure it; None if `stop` was set before the end.

    Args:
        overrides: "key=value" each; goals and bounds of the run are ignored.
        warm_up_s: unmeasured time after the first learned batch; by default at most `WARM_UP_S`.

    Raises:
        AclearnError: the run cannot be started, a role died too often, or nothing was learned.
    """
    if not (math.isfinite(seconds) and 0 < seconds <= MOST_SECONDS):
        raise ConfigError(
            f"--seconds: {seconds:g} is not a valid time; expected more than 0 and at most "
            f"{MOST_SECONDS:g} seconds, e.g. --seconds 30"
        )
    warm_up_s = min(WARM_UP_S, seconds) if warm_up_s is None else warm_up_s
    with temporary_directory(PROFILE, stop) as folder:
        loaded = load_profiled(config, overrides, folder, seconds)
        watch = ProfileWatch(seconds, warm_up_s=warm_up_s, stop=stop, stream=stream)
        train(loaded, resume=False, stop=stop, console=watch)
    if watch.first is None or watch.last is None:
        if stop:
            return None
        raise AclearnError(
            "the run ended before the profile was complete; find out why with `aclearn train`, or "
            "profile for a shorter time (--seconds)"
        )
    return step_profile(watch.first, watch.last, cores=usable_cores(), notes=watch.notes)
