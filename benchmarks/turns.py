"""Trainings that take turns, since a machine's speed drifts by the hour, and can be resumed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from aclearn.runs import read_metrics

_ROOT = Path(__file__).resolve().parent.parent
#: Seconds for the processes to end after the training time.
_ENDS_WITHIN_S = 120.0


def train(config: Path, overrides: Sequence[str], folder: Path, until_s: float) -> None:
    """Train, or resume, until `until_s` seconds of training; the output goes beside the folder.

    So does the number of metrics lines with which each turn began.

    Raises:
        subprocess.CalledProcessError: the training failed, or a signal ended it.
    """
    begun_s = seconds(folder)
    command = [
        *(sys.executable, "-m", "services.cli", "train", str(config), *overrides),
        f"run.name={folder.name}",
        f"run.dir={folder.parent}",
        f"run.max_wall_s={until_s}",
        *(["--resume"] if begun_s else []),
    ]
    with _beside(folder, "turns").open("a") as file:
        file.write(f"{len(lines_of(folder)) if begun_s else 0}\n")
    with _beside(folder, "log").open("a") as log:
        process = subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            status = process.wait(timeout=until_s - begun_s + _ENDS_WITHIN_S)
        except KeyboardInterrupt:
            process.wait(timeout=_ENDS_WITHIN_S)  # it got the signal too and saves a checkpoint
            raise
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    if status:
        raise subprocess.CalledProcessError(status, command)


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics lines of a run so far."""
    metrics = folder / "metrics.jsonl"
    return list(read_metrics(metrics)) if metrics.exists() else []


def seconds(folder: Path) -> float:
    """Training time of a run so far; 0 before its first learned step."""
    lines = lines_of(folder)
    return float(lines[-1]["time_s"]) if lines and lines[-1]["learned_steps"] else 0.0


def turns_of(folder: Path) -> Iterator[list[dict[str, Any]]]:
    """The lines of each turn from its first learned step on, without the processes' start."""
    lines = lines_of(folder)
    begins = [int(text) for text in _beside(folder, "turns").read_text().split()]
    for begun, end in pairwise([*begins, len(lines)]):
        learned = lines[begun - 1]["learned_steps"] if begun else 0
        turn = [line for line in lines[begun:end] if line["learned_steps"] > learned]
        if turn:
            yield turn


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(f"{folder.name}.{suffix}")
