"""`aclearn train`: starts every role, supervises and ends them, shows the run."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from aclearn.config import Config
from aclearn.extensions import search_modules_in
from aclearn.launch import RoleCommand, StopFlag, Supervisor
from aclearn.runs import RunFolder, create_next, lock_all, lock_run
from aclearn.views import RunConsole, open_console
from services.ending.run_ending import RunEnding
from services.launcher.called_console import CalledConsole, OnMetrics
from services.launcher.place import Place, open_place
from services.launcher.role_commands import role_command
from services.launcher.run_parent import RunParent
from services.launcher.status_client import StatusClient
from services.monitor.run_clock import STARTED_AT_VARIABLE, moment
from services.policy.factory import architecture_of
from services.policy.users_network import network_variable
from services.role.context import RoleContext, RunEnv
from services.roles import ACTOR, MONITOR, ROLES, WRITERS, RoleSpec
from services.start.folder import check_same_run
from services.start.preflight import SPEC_VARIABLE, check_run
from services.trainer.warm_start import warm_start

_LOGGER = logging.getLogger(__name__)


def open_run_folder(config: Config, *, resume: bool, overwrite: bool = False) -> RunFolder:
    """The run's folder, locked: a new one, or with `resume` the existing one.

    Raises:
        ConfigError: the existing run has another environment or policy.
        RunFolderError: it exists already (or, to resume, does not), or another process writes it.
        CheckpointError: the existing run has learned, and has no checkpoint.
    """
    # in lock-step one process has every role
    lock = partial(lock_all if config.run.deterministic else lock_run, roles=WRITERS)

    def create(name: str) -> RunFolder:
        text = config.with_run(name=name).to_yaml()
        return RunFolder.create(config.run.dir, name, text, lock=lock, overwrite=overwrite)

    if not resume and config.run.name is None:
        return create_next(config.run.dir, config.experiment, create)
    if not resume:
        return create(str(config.run.name))
    folder = RunFolder.open(Path(config.run.dir) / str(config.run.name), lock=lock)
    try:
        check_same_run(config, folder)
        folder.check_resumable()
        folder.write_config_yaml(config.to_yaml())
    except BaseException:
        folder.close()
        raise
    return folder


def train(
    config: Config,
    *,
    resume: bool,
    stop: StopFlag,
    overwrite: bool = False,
    console: RunConsole | None = None,
    on_metrics: OnMetrics | None = None,
    on: str = "local",
) -> RunEnding | None:
    """Run `config` until it is over; returns how it ended.

    None if `stop` is set before the start. An error that ends the run has a note about lost
    learning, if any.

    Args:
        console: shows the run, instead of the one for standard output.
        on_metrics: gets each new line of metrics; see `CalledConsole`.
        on: where the roles run, by its name in `PLACES`.

    Raises:
        AclearnError: the run cannot be started, or a role died too often.
        BaseException: what `on_metrics` raised, after the run has ended in order.
    """
    search_modules_in(config.run.pythonpath)
    started_at = os.environ.get(STARTED_AT_VARIABLE, str(moment(time.monotonic())))
    with open_place(on, config, stop) as place:
        if place is None:
            return None
        checked = check_run(
            place.config, place.bound, resume=resume, overwrite=overwrite, stop=stop
        )
        if checked is None or stop:
            return None
        placed, chosen, spec = checked
        config = place.kept(placed)
        if not resume:
            architectures = {
                name: architecture_of(config.of_policy(name), its)
                for name, its in spec.by_policy(config.patterns).items()
            }
            for doubt in warm_start(config, architectures).doubts:
                _LOGGER.warning(doubt)
        variables = {
            STARTED_AT_VARIABLE: started_at,
            SPEC_VARIABLE: json.dumps(spec.to_dict()),
            **network_variable(config, spec),
        }
        with open_run_folder(config, resume=resume, overwrite=overwrite) as folder:
            placed = placed.with_run(name=folder.path.name)
            ending = RunEnding(folder)
            view = console or open_console(config.run.bounds(), name=folder.name)
            if on_metrics is not None:
                view = CalledConsole(view, on_metrics, folder.metrics_path, stop)
            try:
                if config.run.deterministic:
                    # imported here: only lock-step needs torch in this process
                    from services.launcher.lockstep import run_lockstep

                    with view:
                        for text in chosen:
                            view.note(text)
                        run_lockstep(placed, folder, spec, stop=stop, console=view, ending=ending)
                else:
                    place.open_files(folder.config_path.read_bytes())
                    context = RoleContext(
                        "supervisor", 0, placed, RunEnv(place.monitor, folder), stop
                    )
                    _supervise(context, place, folder, variables, ending, view, chosen)
            except BaseException as error:
                if (lost := ending.lost()) is not None:
                    error.add_note(lost)
                raise
            if isinstance(view, CalledConsole) and view.error is not None:
                raise view.error
            return ending


def _supervise(
    context: RoleContext,
    place: Place,
    folder: RunFolder,
    variables: Mapping[str, str],
    ending: RunEnding,
    console: RunConsole,
    chosen: Sequence[str],
) -> None:
    config = context.config

    def command(spec: RoleSpec, index: int) -> RoleCommand:
        return role_command(
            config,
            folder,
            place.bound if spec is MONITOR else place.monitor,
            spec,
            index,
            variables,
            config_path=place.config_path,
            overrides=place.overrides,
        )

    supervisor = Supervisor(
        [
            command(spec, index)
            for spec in ROLES.values()
            for index in range(spec.processes(config))
        ],
        max_restarts=config.supervisor.max_restarts,
        restart_window_s=config.supervisor.restart_window_s,
        backoff_first_s=config.supervisor.backoff_first_s,
        backoff_max_s=config.supervisor.backoff_max_s,
        start_process=place.start,
    )
    try:
        client = context.connect(context.run.monitor)
        line = StatusClient(client, context.watch_key(client))
        with console as view:
            for text in chosen:
                view.note(text)
            parent = RunParent(
                config,
                supervisor,
                line,
                view,
                context.stop,
                partial(command, ACTOR),
                lambda tuned: place.actors(tuned, view.note),
            )
            try:
                parent.run()
            finally:
                ending.newest_line = parent.newest_line
    finally:
        context.close()
