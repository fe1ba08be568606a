"""Whole runs in this process, and their trainers' batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aclearn.learning import TrainingQueue
from aclearn.types import Unroll
from tests.support.whole_run import WholeRun


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., WholeRun]]:
    """Starts runs and closes them."""
    runs = []

    def start(folder: Path = tmp_path, **groups) -> WholeRun:
        runs.append(WholeRun(folder, **groups))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> list[list[Unroll]]:
    """The learned batches, each with its unrolls."""
    batches: list[list[Unroll]] = []
    take = TrainingQueue.take

    def recording(queue, count, *, timeout_s):
        if taken := take(queue, count, timeout_s=timeout_s):
            batches.append(taken)
        return taken

    monkeypatch.setattr(TrainingQueue, "take", recording)
    return batches


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The package; its service process and its change of `sys` end with the test."""
    import wandb

    for name in ("exit", "excepthook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    yield wandb
    wandb.teardown()
