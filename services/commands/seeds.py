"""`aclearn train --seeds`: runs of one configuration that differ by their seeds, in one folder."""

from __future__ import annotations

import operator
import re
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from aclearn.config import (
    Config,
    RunConfig,
    config_from_yaml,
    inline_yaml,
    load_config,
    override_keys,
)
from aclearn.errors import AclearnError, ConfigError, RoleFailure, RunFolderError, RunFolderTaken
from aclearn.launch import StopFlag
from aclearn.runs import (
    RunFolder,
    is_locked,
    make_next,
    numbered_runs,
    runs_in,
    write_atomically,
)
from aclearn.views import find_curves
from aclearn.views.comparison import compare_group, print_table
from aclearn.views.run_groups import group_runs
from aclearn.views.seeds_console import SeedsConsole
from services.commands.resumed_run import Overrides, tell_not_taken
from services.ending.words import as_given, closing_words, why_over
from services.launcher.seed_runs import SeedRun, SeedRuns, runs_at_once

#: The configuration of all seeds, in their folder.
SEEDS_FILE: Final = "seeds.yaml"
#: Overrides that name one run; each run of a seed has its own.
_OF_ONE_RUN: Final = ("run.seed", "run.name", "run.dir")
#: Ends of a run, which a run that is over takes too: its result would be the same.
_ENDS: Final = ("evaluator.stop_after", *(f"run.{key}" for key in RunConfig().bounds()))
_MOST_SEEDS, _LARGEST_SEED = 1000, 2**31 - 1
#: The command of each run; -P as for roles.
_TRAIN: Final = (sys.executable, "-P", "-m", "services.cli", "train")


def read_seeds(text: str) -> int | list[int]:
    """The value of `--seeds`: a number of seeds, or a list of seeds."""
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*,?\s*", text):
        raise ConfigError(
            f"--seeds: expected a number of seeds, e.g. 5, or a list of them, e.g. 1,4,7, got "
            f"{text!r:.100}"
        )
    numbers = [int(part) for part in text.split(",") if part.strip()]
    return numbers if "," in text else numbers[0]


def check_seeds(seeds: int | Sequence[int], first: int) -> list[int]:
    """The seeds: so many from `first` on, or those of a list.

    Raises:
        ConfigError: there is none, one is there twice, or one is no seed.
    """
    if isinstance(seeds, Sequence):
        found = [operator.index(seed) for seed in seeds]
    elif seeds > _MOST_SEEDS:
        raise ConfigError(
            f"--seeds: {seeds} is the number of seeds, of which at most {_MOST_SEEDS} are run; for "
            f"the seed {seeds} alone give run.seed={seeds}, or a list: {seeds},"
        )
    else:
        found = list(range(first, first + operator.index(seeds)))
    if not found:
        raise ConfigError("--seeds: expected at least one seed, got none")
    if twice := [seed for seed in dict.fromkeys(found) if found.count(seed) > 1]:
        raise ConfigError(f"--seeds: each seed runs once; {twice[0]} is there more than once")
    if wrong := [seed for seed in found if not 0 <= seed <= _LARGEST_SEED]:
        raise ConfigError(f"--seeds: expected seeds from 0 to {_LARGEST_SEED}, got {wrong[0]}")
    return found


def train_seeds(
    config: Config,
    seeds: int | Sequence[int],
    *,
    source: str,
    overrides: Overrides,
    at_once: int | None,
    resume: bool,
    overwrite: bool,
    stop: StopFlag,
) -> list[Path]:
    """Run `config` with each seed, and print how the runs ended and compare.

    Args:
        source: of `config`, for a message.
        overrides: that `config` has already; resumed runs get them too.
        at_once: most runs at a time; None: as the cores allow.
        resume: continue the runs that are not over, and start those that are missing.

    Returns:
        The folders of the runs, in the order of the seeds.

    Raises:
        ConfigError: the seeds or the folder cannot be used.
        RunFolderError: the folder exists already, or, to resume, does not.
        RoleFailure: some runs failed; the others have ended in order.
    """
    words = [
        f"{key}={inline_yaml(value)}"
        for key, value in override_keys(overrides).items()
        if key not in _OF_ONE_RUN
    ]
    if resume:
        folder = _existing_folder(config)
        known = load_config(folder / SEEDS_FILE, words)
        begun = "run.seed" not in override_keys(overrides)
        chosen = check_seeds(seeds, known.run.seed if begun else config.run.seed)
        tell_not_taken(source, known, config.with_run(seed=known.run.seed))
        config = known
        at_once = runs_at_once(config, at_once)
    else:
        chosen = check_seeds(seeds, config.run.seed)
        at_once = runs_at_once(config, at_once)
        folder = _new_folder(config, chosen, overwrite=overwrite)
    # the experiment of a file is its name
    common = config.with_run(dir=str(folder), name=None, experiment=config.experiment)
    write_atomically(folder / SEEDS_FILE, common.to_yaml().encode())
    if overwrite:
        _replace(folder, common, chosen)
    runs = [_run(folder, seed, words, resume=resume, overwrite=overwrite) for seed in chosen]
    left = [] if not resume else [run for run in runs if _is_over(run, words)]
    ends = [word for word in words if word.partition("=")[0] in _ENDS]
    for run in left:
        _take(run, ends)
    with SeedsConsole(config.run.bounds(), [run.name for run in runs]) as console:
        for run in left:
            console.end(run.name, "over", "is over, and stays")
        SeedRuns(
            [run for run in runs if run not in left],
            at_once=at_once,
            stop=stop,
            console=console,
            words=_closing_words,
            stop_timeout_s=config.supervisor.stop_timeout_s,
        ).run()
    _tell(folder, runs, stop)
    return [run.folder for run in runs]


def _existing_folder(config: Config) -> Path:
    """The folder of the runs to resume: of `run.name`, else the newest of the environment."""
    if config.run.name is not None:
        folder = Path(config.run.dir) / config.run.name
        _refuse_single_run(folder)
        if (folder / SEEDS_FILE).is_file():
            return folder
    else:
        for folder in numbered_runs(config.run.dir, _experiment(config)):
            file = folder / SEEDS_FILE
            if file.is_file() and load_config(file).env == config.env:
                return folder
    raise RunFolderError(
        f"there are no runs of --seeds of {config.run.name or config.experiment} in "
        f"{config.run.dir} to continue; start them without --resume, or give the run.name of their "
        "folder"
    )


def _new_folder(config: Config, seeds: Sequence[int], *, overwrite: bool) -> Path:
    """A new folder for the runs; with `overwrite` the existing one of `run.name`."""
    dir = Path(config.run.dir)
    try:
        if config.run.name is None:
            return make_next(dir, _experiment(config))
        folder = dir / config.run.name
        _refuse_single_run(folder)
        if folder.exists() and not (overwrite and (folder / SEEDS_FILE).is_file()):
            raise RunFolderTaken(
                f"{folder} exists already; continue its seeds with --resume, replace them with "
                "--overwrite, or give another run.name"
            )
        if others := [run.name for run in runs_in(folder) if run.name not in map(_name, seeds)]:
            raise RunFolderTaken(
                f"{folder} has runs that --overwrite would not replace, and that would be compared "
                f"with the new ones: {', '.join(others)}; give their seeds too, remove these "
                "folders, or give another run.name"
            )
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    except OSError as error:
        raise RunFolderError(
            f"the folder of the seeds cannot be made in {dir} ({error.strerror}); choose another "
            "run.dir"
        ) from error


def _replace(folder: Path, common: Config, seeds: Sequence[int]) -> None:
    """Make the existing runs of these seeds new ones, all or none.

    A run that still waited at a stop would otherwise be resumed as it was before.
    """
    existing = {seed: _name(seed) for seed in seeds if (folder / _name(seed)).exists()}
    for name in existing.values():
        if is_locked(RunFolder.check_free(folder, name, overwrite=True)):
            raise RunFolderTaken(
                f"{folder / name} is being written by another process; stop that, or give another "
                "run.name"
            )
    for seed, name in existing.items():
        text = common.with_run(name=name, seed=seed).to_yaml()
        RunFolder.create(folder, name, text, overwrite=True).close()


def _experiment(config: Config) -> str:
    return f"{config.experiment}-seeds"


def _refuse_single_run(folder: Path) -> None:
    if (folder / "config.yaml").is_file():
        raise ConfigError(
            f"--seeds: {folder} is the folder of one run, not of several; continue that run "
            "without --seeds, or give another run.name (run.name=null: the next free number)"
        )


def _name(seed: int) -> str:
    return f"seed-{seed}"


def _run(
    folder: Path, seed: int, words: Sequence[str], *, resume: bool, overwrite: bool
) -> SeedRun:
    run = folder / _name(seed)
    if resume and (run / "config.yaml").is_file():
        return SeedRun(run, (*_TRAIN, str(run / "config.yaml"), "--resume", *words))
    own = (f"run.name={run.name}", f"run.seed={seed}", *(["--overwrite"] if overwrite else []))
    return SeedRun(run, (*_TRAIN, str(folder / SEEDS_FILE), *own))


def _closing_words(run: SeedRun) -> str:
    try:
        folder = RunFolder.open(run.folder)
        config = config_from_yaml(folder.read_config_yaml(), source=str(folder.config_path))
        summary = folder.read_summary()
    except AclearnError as error:  # the others go on
        return f"ended, and its result cannot be read: {error}"
    return "ended" if summary is None else closing_words(config, summary)


def _is_over(run: SeedRun, words: Sequence[str]) -> bool:
    try:
        return why_over(load_config(run.folder / "config.yaml", words)) is not None
    except AclearnError:  # missing, or its own command says what is wrong
        return False


def _take(run: SeedRun, words: Sequence[str]) -> None:
    """Write overrides into the configuration of a run that is over, as a resumed one's has them."""
    folder = RunFolder.open(run.folder)
    if words:
        folder.write_config_yaml(load_config(folder.config_path, words).to_yaml())


def _tell(folder: Path, runs: Sequence[SeedRun], stop: StopFlag) -> None:
    """Print the comparison and what comes next; raise if a run failed."""
    with suppress(RunFolderError):  # none has written metrics
        curves = [] if stop else find_curves([folder])
        if curves:
            print_table([compare_group(group) for group in group_runs(curves)])
            shown = shlex.quote(str(as_given(folder)))
            print(f"next: aclearn plot {shown}\n      aclearn compare {shown}", flush=True)
    if stop:
        print(f"the runs are in {as_given(folder)}; --resume continues them", flush=True)
    if failed := [run for run in runs if run.failed is not None]:
        lines = [f"  {run.name}: {run.failed}; its log is {run.log_path}" for run in failed]
        raise RoleFailure(
            "\n".join(
                [
                    f"{len(failed)} of {len(runs)} seeds failed; the others are in {folder}, and "
                    "--resume continues those that failed:",
                    *lines,
                ]
            )
        )
