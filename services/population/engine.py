"""What an engine is: it trains and judges the members of one round, wherever that may be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, runtime_checkable

from aclearn.config import Config
from aclearn.errors import RunFolderError
from aclearn.launch import StopFlag

#: Engines by the name of `--on`.
ENGINES: Mapping[str, str] = {
    "local": "services.population.local_engine:LocalEngine",
    "ray": "services.population.ray_engine:RayEngine",
    "batched": "services.population.batched_engine:BatchedEngine",
}


#: Exit status of a member's process whose disk is full; EX_IOERR of sysexits.h.
EXIT_DISK_FULL: Final = 74


class DiskFull(RunFolderError):
    """The disk of a member's folder is full, which says nothing about the member."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder}: the disk on which it is written is full; free space there, then continue "
            "with --resume"
        )


@dataclass(frozen=True)
class Task:
    """A member's part in one round: to continue its run to `run.max_env_steps`, and to be judged.

    Attributes:
        round: from 1.
        folder: the member's run folder; its configuration and newest checkpoint say everything. A
            member without a checkpoint begins.
        config: that of the folder.
    """

    member: int
    round: int
    folder: Path
    config: Config


@dataclass(frozen=True)
class Outcome:
    """What has become of a member in one round.

    Attributes:
        fitness: mean return of the evaluator's episodes; −inf of a dead member.
        standard_error: of that mean; 0 of one episode.
        env_steps: agent steps of its newest checkpoint.
        checkpoint: name of the judged checkpoint, without a suffix.
        detail: why it is dead, in one line.
        restarts: how often it was started again.
    """

    member: int
    status: Literal["trained", "diverged", "failed"]
    fitness: float
    standard_error: float = 0.0
    env_steps: int = 0
    checkpoint: str = ""
    detail: str = ""
    restarts: int = 0


@runtime_checkable
class Engine(Protocol):
    """Trains and judges members.

    Its constructor takes the population's configuration, the most members at a time (`--at-once`,
    or None), and the command's `stop`, for what takes long there.
    """

    def run(self, tasks: Sequence[Task], stop: StopFlag) -> Iterator[Outcome]:
        """The outcome of each task, in any order, each once it is known.

        Those of members that were judged are in their folders by then; see `write_outcome`.
        A member that dies is an outcome, not an error. There are fewer outcomes than tasks only if
        `stop` is set; the members have saved a checkpoint then.

        Raises:
            DiskFull: nothing can be written; the other members have ended with a checkpoint.
        """

    def close(self) -> None:
        """End what the engine has started."""
