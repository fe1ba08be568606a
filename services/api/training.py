"""The functions of the Python API that train."""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aclearn.config import Config
from aclearn.errors import AclearnError, ArgumentError, kind_of
from aclearn.launch import StopFlag, install_stop_signals
from aclearn.launch.main_guard import refuse_in_own_process
from services.api.configurations import Overrides, chosen, configured
from services.api.plain_errors import at_least, plain_errors
from services.api.population import Population
from services.api.run import Run
from services.commands.output import lossy_stdout

# imports inside the functions: they may take seconds


@plain_errors
@lossy_stdout()
def train(
    config: Config | str | Path | None = None,
    overrides: Overrides = (),
    *,
    env: str | Callable[..., Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    on_metrics: Callable[[dict[str, Any]], object] | None = None,
) -> Run:
    """Train on this machine until the run's goal, its bound or a signal, as `aclearn train` does.

    Every role is a process; this one shows the run on standard output, in a notebook under its
    cell. Ctrl-C, or the interruption of a notebook's kernel, ends the run in order, with a
    checkpoint, and then raises `KeyboardInterrupt`; `open_run` opens what was learned, and
    `resume=True` continues it. Outside the main thread no signal is handled.

    Your own classes (`module:Name`) are imported by other processes: they are in a file beside the
    configuration, in the current folder or on `PYTHONPATH`, not in a cell of a notebook.

    Args:
        config: a shipped configuration's name, the path of a YAML file or of a run folder, or a
            `Config`.
        overrides: dotted key → value, as `{"run.seed": 2}`, or texts as on the command line.
        env: an environment instead of a configuration, whose keys are chosen by its spaces: an id
            ("LunarLander-v3"), "module:make", or a class or function that makes one. It is in a
            file that other processes can import; one of a notebook needs `run.deterministic`.
        resume: continue the run of `run.name`, or without a name the newest one of this
            configuration; the run's own configuration counts, with these overrides.
        overwrite: replace the run of `run.name`. A run without a name takes the next number.
        on_metrics: called here with each new line of metrics, a dict of the names in
            docs/metrics.md; if it returns False, the run ends with a checkpoint. Roles go on
            meanwhile.

    Raises:
        AclearnError: the run cannot be started, a role died too often, or learning is lost.
        Exception: what `on_metrics` raised, after the run has ended with a checkpoint.
        KeyboardInterrupt: Ctrl-C; another signal takes its usual effect once the run has ended.
    """
    from services.commands.resumed_run import resumed_config
    from services.commands.train import check_start, train_and_tell

    refuse_in_own_process("aclearn.train")
    _check_callback("on_metrics", on_metrics)
    if (config is None) == (env is None):
        raise ArgumentError("train: expected either config or env, e.g. train(env='CartPole-v1')")
    loaded = configured(config, overrides) if env is None else chosen(env, overrides)
    check_start(loaded, resume=resume, overwrite=overwrite)
    if resume:
        source = str(config) if isinstance(config, str | Path) else "the arguments"
        loaded = resumed_config(source, loaded, overrides)
    with _stopped_by_signals() as stop:
        path = train_and_tell(
            loaded, resume=resume, overwrite=overwrite, stop=stop, on_metrics=on_metrics
        )
    if path is None:  # the program has a handler of its own for it
        raise AclearnError("train: a signal came before the run began")
    return Run(path)


@plain_errors
@lossy_stdout()
def train_seeds(
    config: Config | str | Path | None = None,
    overrides: Overrides = (),
    *,
    seeds: int | Sequence[int],
    env: str | Callable[..., Any] | None = None,
    at_once: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> list[Run]:
    """Train with several seeds, as `aclearn train --seeds` does; arguments as of `train`.

    The runs are in one folder: that of `run.name`, else `<run.experiment>-seeds-<number>`. Each is
    a command of its own, whose output is in `seed-<seed>.log` there. Ctrl-C ends all in order.

    Args:
        seeds: their number, from `run.seed` on, or the seeds themselves.
        at_once: most runs at a time; None: as many as this machine has cores for.
        resume: continue the runs that are not over, and start those that are missing.
        overwrite: replace the runs in the folder of `run.name`.

    Returns:
        The runs, in the order of the seeds.

    Raises:
        AclearnError: the runs cannot be started, or some failed, which are named; the others have
            ended in order.
        KeyboardInterrupt: Ctrl-C; another signal takes its usual effect once the runs have ended.
    """
    from services.commands.seeds import train_seeds as train_each
    from services.commands.train import check_start

    refuse_in_own_process("aclearn.train_seeds")
    if (config is None) == (env is None):
        raise ArgumentError("train_seeds: expected either config or env")
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        seeds = [at_least("seeds", seed, 0) for seed in seeds]
    else:
        seeds = at_least("seeds", seeds, 1)
    at_once = None if at_once is None else at_least("at_once", at_once, 1)
    loaded = configured(config, overrides) if env is None else chosen(env, overrides, alone=False)
    check_start(loaded, resume=resume, overwrite=overwrite)
    with _stopped_by_signals() as stop:
        paths = train_each(
            loaded,
            seeds,
            source=str(config) if isinstance(config, str | Path) else "the arguments",
            overrides=overrides,
            at_once=at_once,
            resume=resume,
            overwrite=overwrite,
            stop=stop,
        )
    return [Run(path) for path in paths]


@plain_errors
@lossy_stdout()
def evolve(
    config: Config | str | Path,
    overrides: Overrides = (),
    *,
    resume: bool = False,
    on: str = "local",
    at_once: int | None = None,
    on_round: Callable[[dict[str, Any]], object] | None = None,
) -> Population:
    """Train members that evolve together, as `aclearn evolve` does; arguments as of `train`.

    Args:
        config: with `population.members`; or the path of a population's folder, to resume it.
        resume: continue the population of `run.name`, or the newest one of this configuration.
        on: the engine that runs the members.
        at_once: most members at a time; None: as many as this machine has cores for.
        on_round: called here with the metrics of each round, a dict of the names in
            docs/populations.md; if it returns False, the population ends.

    Raises:
        AclearnError: the population cannot be started or continued, or all members have died.
        Exception: what `on_round` raised.
        KeyboardInterrupt: Ctrl-C; the members have saved, and `resume=True` continues them.
    """
    from services.commands.evolve import evolve_and_tell

    refuse_in_own_process("aclearn.evolve")
    if not isinstance(config, Config | str | Path):
        raise ArgumentError(f"config: expected a configuration or a path, got {kind_of(config)}")
    _check_callback("on_round", on_round)
    at_once = None if at_once is None else at_least("at_once", at_once, 1)
    with _stopped_by_signals() as stop:
        path = evolve_and_tell(
            config,
            overrides,
            resume=resume,
            on=on,
            at_once=at_once,
            stop=stop,
            on_round=on_round,
        )
    return Population(path)


@contextmanager
def _stopped_by_signals() -> Iterator[StopFlag]:
    """A flag that signals set; at the end the signal takes its usual effect."""
    # only the main thread may handle signals
    main = threading.current_thread() is threading.main_thread()
    flag = install_stop_signals() if main else StopFlag()
    flag.ends_process = False  # it is the caller's
    try:
        with flag as stop:
            yield stop
    finally:  # also after an error: a loop over runs would go on
        if flag.signal is not None:
            signal.raise_signal(signal.Signals[flag.signal])


def _check_callback(name: str, function: object) -> None:
    if function is not None and (not callable(function) or inspect.iscoroutinefunction(function)):
        raise ArgumentError(f"{name}: expected a plain function, got {kind_of(function)}")
