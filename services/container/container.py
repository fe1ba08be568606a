"""One role as the only process of a container of docker-compose.yml.

Docker restarts a container whose status is not 0. A role that has nothing to do, or cannot work
until the user acts, therefore prints the reason and ends with 0.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from aclearn.config import Config, load_config
from aclearn.errors import AclearnError, ConfigError, EndpointError, RankLost, RunFolderError
from aclearn.launch import EXIT_GIVE_UP, RESTARTS_VARIABLE, StopFlag
from aclearn.runs import RunFolder
from aclearn.wire import LIST_FILE, create_keys, parse_endpoint
from services.container.command import KEYS, MOST_RESTARTS, PORTS
from services.container.giving_up import end_run
from services.container.health import read_reports, reports_folder
from services.container.monitor_watch import ENDED_BY_WATCH, MONITOR_HOST, watch_monitor
from services.ending.words import why_over
from services.role.health import FAILED, HealthReport
from services.roles import KEY_ROLES, MONITOR, RoleSpec

_LOGGER = logging.getLogger(__name__)

_PR_SET_DUMPABLE = 4  # <linux/prctl.h>
#: Environment variable with this container's address for other machines.
ANNOUNCE_VARIABLE = "ACLEARN_ANNOUNCE_HOST"
#: Settings of every container; docker-compose.machines.yml publishes these ports.
_NETWORK = (
    f"network.keys_dir={KEYS}",
    "network.bind_host=0.0.0.0",
    *(f"network.ports.{name}={port}" for name, port in PORTS.items() if name != "monitor"),
)


def make_keys(keys: Path, runs: Path, work: Path) -> None:
    """Make the cluster's keys if missing; give them and `runs` to the owner of `work`.

    Errors are printed only: the roles reject missing or unreadable keys.
    """
    owner = work.stat()
    try:
        if not (keys / LIST_FILE).exists():
            print(f"wrote {len(create_keys(keys, KEY_ROLES))} keys to {keys}")
        for path in (keys, *keys.iterdir(), runs):
            os.chown(path, owner.st_uid, owner.st_gid)
    except (EndpointError, OSError) as error:
        print(f"aclearn: {error}", file=sys.stderr)


def become_owner(work: Path) -> None:
    """Change to the user who owns `work`, for good; does nothing without the privilege."""
    if os.geteuid() != 0:
        return
    owner = work.stat()
    os.setgroups([])
    os.setgid(owner.st_gid)
    os.setuid(owner.st_uid)
    # otherwise the files in /proc/self still belong to root
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    os.environ["HOME"] = tempfile.gettempdir()  # other users cannot read root's


def run_contained(
    spec: RoleSpec,
    path: str,
    monitor: str,
    overrides: list[str],
    stop: StopFlag,
    run_role: Callable[..., int],
) -> int:
    """Run one role to its end; returns the container's exit status.

    Args:
        monitor: its address; `MONITOR_HOST` means the same docker-compose.yml.
    """
    become_owner(Path.cwd())
    config: Config | None = None
    role, here, restarts, began = spec.name, False, 0, time.time()

    def fails(error: Exception) -> None:
        """End the run of this file, which cannot go on without this role."""
        if config is not None and here and spec is not MONITOR and not spec.optional:
            words = next(iter(str(error).splitlines()), "") or type(error).__name__
            end_run(spec, config, monitor, f"role failed: {role}: {words}", stop)

    try:
        here = spec is MONITOR or parse_endpoint(monitor).host == MONITOR_HOST
        config = load_config(path, [*network_overrides(os.environ), *overrides]).named_by_seed()
        if here and spec is not MONITOR:
            at_bound = partial(finished, config)
            watch_monitor(_folder(config), reports_folder(), stop, at_bound, began)
        words = nothing_to_do(spec, config) or (finished(config) if here else None)
        if words is not None:
            print(words)
            return 0
        if here:
            check_folder(config)
        name, note = None, ""
        if (died := _died(role)) is not None:
            restarts = died.restarts + 1
            os.environ[RESTARTS_VARIABLE] = str(restarts)
            note = words_of(died)
            _LOGGER.warning("event=started_again detail=%r", note)
            if time.monotonic() - died.at < config.monitor.silent_after_s:
                name = died.name  # later the monitor may give its number to another process
        status = run_role(spec, name, config, monitor, stop, contained=True, note=note)
        if stop.reason in ENDED_BY_WATCH:
            print(f"aclearn: {stop.reason}; see the log of the monitor", file=sys.stderr)
            return 0
        if status == EXIT_GIVE_UP:
            return 0  # the run has refused this process, and its log says why
        return stop.exit_status if stop and spec is MONITOR else status
    except RankLost as error:
        print(f"aclearn: {error}", file=sys.stderr)
        if restarts >= MOST_RESTARTS:
            fails(error)
        return 1  # started again, as the others are
    except AclearnError as error:
        print(f"aclearn: {error}", file=sys.stderr)
        fails(error)
        return 0
    except Exception as error:
        if restarts >= MOST_RESTARTS:  # this was the last start
            fails(error)
        raise


def network_overrides(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Overrides for a container's port, its announced address and its keys."""
    host = environment.get(ANNOUNCE_VARIABLE)
    return _NETWORK if not host else (*_NETWORK, f"network.announce_host={host}")


def nothing_to_do(spec: RoleSpec, config: Config) -> str | None:
    """Why the configuration does not use this role, in one line; None if it does.

    Raises:
        ConfigError: the whole run takes place in one process.
    """
    if config.run.deterministic:
        raise ConfigError(
            "run.deterministic: a single process runs all roles, so containers have nothing "
            'to do; run it by `docker-compose run --rm --no-deps --user "$(id -u):$(id -g)" '
            "trainer train CONFIG`"
        )
    return spec.unused(config)


def finished(config: Config) -> str | None:
    """Why the existing run is over, in one line; None if it is not.

    Raises:
        ConfigError: the existing run has another environment or policy, and has learned something.
        RunFolderError: its files cannot be read.
    """
    if not (_folder(config) / "config.yaml").exists():
        return None
    try:
        words = why_over(config)
    except ConfigError:
        if RunFolder.open(_folder(config)).has_learned:
            raise
        return None  # the role replaces it: see role_folder
    if words is None:
        return None
    return f'{words} in ARGS; to train another one: ARGS="run.seed={config.run.seed + 1}"'


def check_folder(config: Config) -> None:
    """Raise if the run folder cannot be written; it need not exist.

    Every role checks it, so that none waits for a monitor or trainer that fails at this.
    """
    path = _folder(config)
    place = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        runs = config.run.dir
        raise RunFolderError(
            f"run.dir: user {os.geteuid()}, who owns the folder of docker-compose.yml, cannot "
            f"write {place.absolute()}; give it to that user: sudo chown -R {os.geteuid()} {runs}"
        )


def _folder(config: Config) -> Path:
    return Path(config.run.dir) / str(config.run.name)


def _died(role: str) -> HealthReport | None:
    """The last report of this container's previous process; None if it ended in order."""
    reports = read_reports(reports_folder())
    return next((each for each in reports if each.name.startswith(f"{role}-")), None)


def words_of(died: HealthReport) -> str:
    """How the process of this report ended, as text."""
    if died.waits_for == FAILED:
        return "its previous process failed; see the end of that process's log"
    words = "its previous process was killed"
    limit = memory_limit_bytes()
    if limit is not None:
        used = f"{died.rss_bytes / 2**20:.0f} of {limit / 2**20:.0f} MiB"
        words += f", at most a second after it used {used}, the limit of its container"
    return words


def memory_limit_bytes() -> int | None:
    """This container's memory limit; None without one."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = int(Path(path).read_text())
        except (OSError, ValueError):
            continue
        return limit if limit < 2**60 else None
    return None
