"""The folder of a population: its configuration, its lineage, and a run folder for each member."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from aclearn.config import Config, load_config
from aclearn.errors import ConfigError, RunFolderError, RunFolderTaken
from aclearn.population import Lineage
from aclearn.population.file import best_folder, member_folder, read_lineage, write_lineage
from aclearn.runs import (
    FolderLock,
    is_population,
    lock_new,
    make_next,
    numbered_runs,
    write_atomically,
)
from services.start.folder import differences

#: The configuration of all members.
CONFIG_FILE: Final = "population.yaml"
_LOCK: Final = (".lock", "aclearn evolve", 0.5)
#: Keys of the group `population` with which a population may be resumed.
_MAY_CHANGE: Final = ("population.rounds", "population.stop_after")
#: Groups and keys whose other values mean other members, or another fitness.
_OF_THE_POPULATION: Final = (
    "population",
    "env",
    "policy",
    "run.seed",
    "optimiser.kind",
    "evaluator.env",
    "evaluator.greedy",
    "evaluator.episodes",
)


class PopulationFolder:
    """The folder `<run.dir>/<name>/` of a population, which this process alone writes.

    Attributes:
        config: of all members; `population.yaml`.
        lineage: the newest; `save` writes it. Within a round it has outcomes that only the members'
            folders have.
    """

    def __init__(self, path: Path, config: Config, lineage: Lineage, lock: FolderLock) -> None:
        self.path, self.config, self.lineage, self._lock = path, config, lineage, lock
        self.metrics_path = path / "metrics.jsonl"
        self.best = best_folder(path)

    @classmethod
    def create(cls, config: Config, lineage: Lineage) -> PopulationFolder:
        """The folder of a new population: that of `run.name`, else the next number's.

        One that a killed command has begun to make is taken.

        Raises:
            RunFolderError: it exists already, or cannot be made.
        """
        dir = Path(config.run.dir)
        try:
            name = config.run.name
            path = make_next(dir, experiment_of(config)) if name is None else dir / name
            lock = lock_new(path, _LOCK, first=(CONFIG_FILE,))
        except OSError as error:
            raise RunFolderError(
                f"a folder for the population cannot be made in {dir} ({error.strerror}); choose "
                "another run.dir"
            ) from error
        if lock is None:
            raise RunFolderTaken(_taken(path))
        config = config.with_run(name=path.name, experiment=config.experiment)
        try:
            write_config(path, config)
            write_lineage(path, lineage)  # last: it makes the folder a population
        except BaseException:
            lock.close()
            raise
        return cls(path, config, lineage, lock)

    @classmethod
    def open(cls, path: Path, config: Config) -> PopulationFolder:
        """The folder at `path` to continue it with `config`.

        Raises:
            RunFolderError: it is no population, or another process writes it.
        """
        read_lineage(path)
        lock = FolderLock(path, _LOCK)
        try:
            write_config(path, config)
            return cls(path, config, read_lineage(path), lock)
        except BaseException:
            lock.close()
            raise

    def save(self, lineage: Lineage) -> None:
        """Write the lineage, which is the newest from now on.

        Raises:
            RunFolderError: it cannot be written.
        """
        write_lineage(self.path, lineage)
        self.lineage = lineage

    def member(self, number: int) -> Path:
        """The run folder of a member."""
        return member_folder(self.path, number)

    def close(self) -> None:
        """Release the lock."""
        self._lock.close()


def experiment_of(config: Config) -> str:
    """What the names of a configuration's populations begin with."""
    name = config.experiment
    return name if name.startswith("population") else f"{name}-population"


def write_config(folder: Path, config: Config) -> None:
    """Write the configuration of all members."""
    try:
        write_atomically(folder / CONFIG_FILE, config.to_yaml().encode())
    except OSError as error:
        raise RunFolderError(
            f"{folder / CONFIG_FILE} cannot be written ({error.strerror})"
        ) from error


def existing_folder(config: Config) -> Path:
    """The folder of the population to resume: of `run.name`, else the newest of its environment.

    Raises:
        RunFolderError: there is none.
    """
    dir = Path(config.run.dir)
    if config.run.name is not None:
        read_lineage(dir / config.run.name)  # says what is wrong with it
        return dir / config.run.name
    for path in numbered_runs(dir, experiment_of(config)):
        if is_population(path) and load_config(path / CONFIG_FILE).env == config.env:
            return path
    raise RunFolderError(
        f"there is no population of {config.experiment} in {dir} to continue; start one without "
        "--resume, or give its run.name"
    )


def refuse_other_population(folder: Path, there: Config, here: Config) -> None:
    """Raise `ConfigError` if `here` has other members, ranges, episodes or the like."""
    found = [
        f"{key} is {theirs!r} there, {ours!r} here"
        for key, theirs, ours in differences(there, here)
        if any(f"{key}.".startswith(f"{each}.") for each in _OF_THE_POPULATION)
        and key not in _MAY_CHANGE
    ]
    if found:
        raise ConfigError(
            f"the population in {folder} is another one: {'; '.join(found)}. Give these keys the "
            "same values, or start a new population without --resume"
        )


def _taken(path: Path) -> str:
    if is_population(path):
        return (
            f"the population {path} exists already; continue it with --resume, or give another "
            "run.name"
        )
    return f"{path} exists already; give another run.name"
