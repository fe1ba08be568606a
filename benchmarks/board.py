"""The board: CPU minutes, seconds and agent steps until 8 tasks are learned, by library.

    python benchmarks/board.py --commands                       # how to install the other libraries
    python benchmarks/board.py --out docs/results/data --resume --tasks cartpole acrobot pendulum
    python benchmarks/board.py --out docs/results/data --table docs/results/board.md
    python benchmarks/board.py --out docs/results/data --picture docs/results/board.png

One training at a time for each task, library and seed; the libraries take turns. Each appends a row
to OUT/board.csv. With --resume, what has a row that counts is not trained again.

* **The target**, for all libraries: the mean return of the newest 100 training episodes is that of
  aclearn's configuration. Training episodes need no second program that would take part of the
  cores, and cost every library the same: nothing. `board_measure.py` says what counts as newest.
* `core_s`: CPU seconds of all processes of the training, from the command to the target; imports
  and starts count. `wall_s`: seconds. `steps`: agent steps, of Atari four frames each.
* `others`: share of the machine's cores that other programs used meanwhile. A row with more than
  0.05 does not count, nor does one that failed.
* `ended`: reached; limit (--minutes were over); over (the library's own number of steps was); or
  failed. `mean`: the newest mean return.

Each library is in a virtual environment of its own, PEERS/NAME. It takes its own published settings
(`settings`); where it has none for a task, its defaults. All have one torch thread on the small
tasks, which is faster for such networks, and one for each core on Breakout and Pong.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from board_cleanrl import COMMIT as CLEANRL_COMMIT
from board_cleanrl import SCRIPTS as CLEANRL_SCRIPTS
from board_report import Row, counts, picture, table, write_table

from aclearn.telemetry.cores import usable_cores
from aclearn.telemetry.machine import cpu_model

_HERE: Final = Path(__file__).resolve().parent
_ROOT: Final = _HERE.parent


@dataclass(frozen=True)
class Task:
    """What is learned.

    Attributes:
        target: mean return of 100 episodes, that of aclearn's configuration.
        minutes: a training is cut after them.
        threads: of torch in the other libraries; 0: as many as they take.
        frames: recorded steps of an agent step.
        resident: aclearn's configuration with resident environments; "" where there is none.
        queued: aclearn's configuration for its queues; "" is the task's name.
    """

    target: float
    minutes: float = 10.0
    threads: int = 1
    frames: int = 1
    resident: str = ""
    queued: str = ""


TASKS: Final = {
    "cartpole": Task(475.0, resident="resident/cartpole", queued="cartpole_ppo"),
    "acrobot": Task(-100.0, resident="resident/acrobot"),
    "pendulum": Task(-200.0, resident="resident/pendulum_hddpg"),
    "lunarlander": Task(200.0),
    "doorkey": Task(0.93),
    "halfcheetah": Task(2000.0, minutes=60.0),
    "breakout": Task(15.0, minutes=60.0, threads=0, frames=4),
    "pong": Task(18.0, minutes=60.0, threads=0, frames=4),
}
QUEUED: Final = "aclearn"
RESIDENT: Final = "aclearn_resident"
#: Another library → the package whose version counts; CleanRL is files at a commit.
PEERS: Final = {
    "stable_baselines3": "stable-baselines3",
    "cleanrl": "",
    "sample_factory": "sample-factory",
    "rllib": "ray",
}
LIBRARIES: Final = (QUEUED, RESIDENT, *PEERS)
_DEFAULT_SETTINGS: Final = {
    "stable_baselines3": "rl-baselines3-zoo 22e3ff24, hyperparams/ppo.yml",
    "sample_factory": "sf_examples/train_gym_env.py, those of CartPole",
    "rllib": "defaults of PPOConfig",
}
_SETTINGS: Final = {
    ("sample_factory", "cartpole"): "sf_examples/train_gym_env.py",
    ("sample_factory", "pendulum"): "sf_examples/mujoco, those of its robots",
    ("sample_factory", "halfcheetah"): "sf_examples/mujoco",
    ("sample_factory", "breakout"): "sf_examples/atari",
    ("sample_factory", "pong"): "sf_examples/atari",
    ("rllib", "cartpole"): "examples/algorithms/ppo/cartpole_ppo.py",
    ("rllib", "pendulum"): "examples/algorithms/ppo/pendulum_ppo.py",
    ("rllib", "halfcheetah"): "examples/algorithms/ppo/mujoco_ppo.py",
    ("rllib", "breakout"): "examples/algorithms/ppo/atari_ppo.py",
    ("rllib", "pong"): "examples/algorithms/ppo/atari_ppo.py",
}
#: Task and library → why it is not trained; "" for all tasks.
NOT_RUN: Final = {
    **{(task, RESIDENT): "no resident environment" for task in TASKS if not TASKS[task].resident},
}
#: Seconds for a training's processes to end.
_ENDS_WITHIN_S: Final = 60.0
_CELL: Final = ("task", "library", "seed")
FIELDS: Final = (
    *_CELL,
    *("version", "settings", "command", "machine", "cpu", "commit"),
    *("steps", "core_s", "wall_s", "reached", "ended", "mean", "others"),
)


@dataclass(frozen=True)
class Training:
    """One training of the board."""

    task: str
    library: str
    seed: int

    @property
    def config(self) -> str:
        """Name of aclearn's configuration."""
        task = TASKS[self.task]
        return task.resident if self.library == RESIDENT else task.queued or self.task

    def command(self, peers: Path, folder: Path) -> list[str]:
        """Trains, in `folder` where it writes files."""
        if self.library not in PEERS:
            return [
                *(sys.executable, "-m", "services.cli", "train", self.config),
                *(f"run.seed={self.seed}", f"run.dir={folder}", "run.name=r"),
                *("run.stop_at_target=false", "run.metrics_every_s=0.5"),
            ]
        script = _HERE / f"board_{_script(self.library)}.py"
        command = [str(python_of(self.library, peers)), str(script), self.task]
        if self.library == "cleanrl":
            command.append(f"--sources={peers / self.library / 'sources'}")
        return [*command, f"--seed={self.seed}"]

    @property
    def settings(self) -> str:
        """Where the library's settings come from."""
        if self.library not in PEERS:
            return f"configs/{self.config}.yaml"
        if self.library == "cleanrl":
            return f"cleanrl/{CLEANRL_SCRIPTS[self.task]}.py, its defaults"
        return _SETTINGS.get((self.library, self.task), _DEFAULT_SETTINGS[self.library])


def python_of(library: str, peers: Path) -> Path:
    """The Python of a library's virtual environment."""
    return peers / library / "bin/python"


def install_commands(library: str, peers: Path) -> str:
    """The shell command that makes a library's virtual environment."""
    folder = shlex.quote(str(peers / library))
    wanted = (_HERE / "requirements" / f"{library}.txt").relative_to(_ROOT)
    return f"python -m venv {folder} && {folder}/bin/pip install --requirement {wanted}"


def missing(library: str, peers: Path) -> str:
    """What to do before a library can be trained; "" if nothing."""
    if library not in PEERS or python_of(library, peers).exists():
        return ""
    return f"{python_of(library, peers)} is missing; {install_commands(library, peers)}"


def trainings(
    tasks: Sequence[str], libraries: Sequence[str], seeds: Sequence[int]
) -> list[Training]:
    """What exists of these, all of a seed before the next seed."""
    cells = itertools.product(seeds, tasks, libraries)
    return [
        Training(task, library, seed)
        for seed, task, library in cells
        if library != RESIDENT or TASKS[task].resident
    ]


def version_of(library: str, peers: Path) -> str:
    """The library's version, and torch's."""
    python = str(python_of(library, peers)) if library in PEERS else sys.executable
    package = PEERS.get(library, "aclearn")
    names = [name for name in (package, "torch", "gymnasium") if name]
    code = f"import importlib.metadata as m; print(*[m.version(n) for n in {names}])"
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    found = [f"{n} {v}" for n, v in zip(names, asked.stdout.split(), strict=True)]
    return ", ".join([f"cleanrl {CLEANRL_COMMIT[:8]}"] * (not package) + found)


def run(training: Training, peers: Path, logs: Path, minutes: float | None) -> dict[str, Any]:
    """Train, and give the row of the table.

    Raises:
        RuntimeError: the training could not be measured; with the end of its output.
    """
    task = TASKS[training.task]
    log = logs / f"{training.task}-{training.library}-{training.seed}.log"
    with tempfile.TemporaryDirectory() as directory, log.open("w") as output:
        folder = Path(directory)
        command = training.command(peers, folder)
        returns = (
            ["--episodes", str(folder / "episodes"), f"--frames={task.frames}"]
            if training.library in PEERS
            else ["--metrics", str(folder / "r" / "metrics.jsonl")]
        )
        limit_s = 60.0 * (task.minutes if minutes is None else minutes)
        environment = os.environ | {"BOARD_EPISODES": str(folder / "episodes"), "TMPDIR": directory}
        if training.library in PEERS and task.threads:
            environment["OMP_NUM_THREADS"] = str(task.threads)
        with subprocess.Popen(
            [
                *(sys.executable, str(_HERE / "board_measure.py"), *returns),
                *(f"--target={task.target}", f"--limit-s={limit_s}", "--", *command),
            ],
            cwd=_ROOT if training.library not in PEERS else folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,  # of Ctrl-C it hears by this process
            text=True,
        ) as measuring:
            try:
                said, _ = measuring.communicate(timeout=limit_s + _ENDS_WITHIN_S)
            except BaseException:
                measuring.terminate()  # it kills what is below it
                measuring.communicate(timeout=_ENDS_WITHIN_S)
                raise
        shown = shlex.join(command).replace(directory, "DIR")
        shown = shown.replace(str(peers), ".peers").replace(f"{_ROOT}/", "")
    if measuring.returncode:
        raise RuntimeError(f"{log}: {log.read_text()[-500:]}")
    found: dict[str, Any] = json.loads(said)
    mean = "" if found["mean"] is None else f"{found['mean']:.5g}"
    return vars(training) | {
        "version": version_of(training.library, peers),
        "settings": training.settings,
        "command": shown.replace(sys.executable, "python"),
        "machine": f"{usable_cores()} cores, {platform.system()} {platform.release()}",
        "cpu": cpu_model(),
        "commit": _commit(),
        "reached": "yes" if found["ended"] == "reached" else "no",
        **found,
        "mean": mean,
    }


def _script(library: str) -> str:
    return "sb3" if library == "stable_baselines3" else library


def _commit() -> str:
    """The commit of the code, with a plus if files other than results differ from it."""
    git = ["git", "-C", str(_ROOT)]
    named = subprocess.run(
        [*git, "describe", "--always"], capture_output=True, text=True, check=True
    )
    same = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", ".", ":!docs/results"])
    return named.stdout.strip() + "+" * bool(same.returncode)


def rows_of(path: Path) -> list[Row]:
    """The rows of a file; none if there is none."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [Row.of(row) for row in csv.DictReader(file)]


def train(
    wanted: Sequence[Training], path: Path, *, peers: Path, minutes: float | None
) -> Iterator[dict[str, Any]]:
    """Train what has no row that counts yet; each row is in the file before it is given."""
    done = {row.cell for row in rows_of(path) if counts(row)}
    path.parent.mkdir(parents=True, exist_ok=True)
    logs = Path(tempfile.mkdtemp(prefix="board-"))
    for training in wanted:
        if (training.task, training.library, training.seed) in done:
            continue
        row = run(training, peers, logs, minutes)
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
        yield row


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder of the rows")
    parser.add_argument("--resume", action="store_true", help="go on with the rows that are there")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--minutes", type=float, help="cut of a training; 10, of large tasks 60")
    parser.add_argument("--peers", type=Path, default=_ROOT / ".peers", help="their environments")
    parser.add_argument("--commands", action="store_true", help="train nothing: how to make them")
    parser.add_argument("--table", type=Path, help="train nothing: write the table into this page")
    parser.add_argument("--picture", type=Path, help="train nothing: draw this picture")
    options = parser.parse_args(arguments)
    peers = options.peers.resolve()
    if options.commands:
        for library in PEERS:
            print(install_commands(library, peers))
        return
    if options.out is None:
        parser.error("--out: the folder of board.csv")
    path = options.out / "board.csv"
    if options.table or options.picture:
        rows = rows_of(path)
        if options.table:
            write_table(table(rows, TASKS, LIBRARIES, NOT_RUN), options.table)
        if options.picture:
            picture(rows, TASKS, LIBRARIES, options.picture)
        return
    if path.exists() and not options.resume:
        parser.error(f"{path} exists; --resume goes on with it")
    for library in options.libraries:
        if said := missing(library, peers):
            parser.error(said)
    wanted = trainings(options.tasks, options.libraries, options.seeds)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the training too
    try:
        for row in train(wanted, path, peers=peers, minutes=options.minutes):
            words = [str(row[name]) for name in (*_CELL, "ended", "steps", "core_s", "others")]
            print(", ".join(words), file=sys.stderr)
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    main()
