"""Repeats the updates of a run's recorded batches, and compares with what the run had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aclearn.config import Config, config_from_yaml
from aclearn.errors import ArgumentError, CheckpointError, ConfigError
from aclearn.extensions import search_modules_in
from aclearn.learning import Batch, GradientWorker, Learner, Sums, UpdateReport, batch_of
from aclearn.policies import Architecture
from aclearn.runs import (
    RING_FOLDER,
    Record,
    RunFolder,
    files_of,
    read_file,
    starts_in,
)
from services.trainer.build import device_of, make_learner
from services.trainer.culprits import Culprit, culprits_of
from services.trainer.flight_recorder import machine_of
from services.trainer.run_states import Comparison, RunStates, Tensors


@dataclass(frozen=True)
class BadUpdate:
    """An update whose gradient is not finite.

    Attributes:
        batch: number of its batch since the trainer's start.
        updates: number of updates before it.
        steps: in the update.
        culprits: rows that give such a gradient by themselves; none where only their sum does.
    """

    batch: int
    updates: int
    steps: int
    culprits: Sequence[Culprit]


@dataclass
class Repeated:
    """What has been repeated.

    Attributes:
        policy, generation: whose batches they are.
        first, batches, updates: number of the first batch since the trainer's start, of batches,
            and of updates.
        refused: updates with a gradient that is not finite, which changed nothing.
        comparisons: with all states of the run within the repeated updates.
        exact: whether bits must be equal: same machine, a CPU, one worker.
        doubts: why bits may differ, and what could not be compared, in sentences.
        bad: the update at which it stopped; None: at none.
    """

    policy: str
    generation: int
    first: int = 0
    batches: int = 0
    updates: int = 0
    refused: int = 0
    comparisons: list[Comparison] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    bad: BadUpdate | None = None
    exact: bool = True

    def agrees(self, tolerance: float) -> bool:
        """Whether all comparisons are of equal bits, or where bits may differ within a distance."""
        most = 0.0 if self.exact else tolerance
        return all(each.equal or each.distance <= most for each in self.comparisons)


class _Stopped(Exception):
    """The first update with a gradient that is not finite was refused."""


def recorded_policies(folder: RunFolder) -> tuple[str, ...]:
    """Names of the policies with recorded batches.

    Raises:
        ArgumentError: there are none.
    """
    rings = folder.path / RING_FOLDER
    found = sorted(path.name for path in rings.glob("*") if starts_in(path))
    if not found:
        raise ArgumentError(
            f"{folder.path} has no recorded batches: it ran without run.flight_recorder, or the "
            "recorder ended (event=flight_recorder_ended in logs/trainer-0.log). Set "
            "run.flight_recorder to a number of batches, for instance 256, and train; --resume "
            "continues this run with it"
        )
    return tuple(found)


def repeat(
    folder: RunFolder,
    policy: str,
    *,
    generation: int | None = None,
    until_nonfinite: bool = False,
    note: Callable[[int, UpdateReport], None] = lambda batch, report: None,
) -> Repeated:
    """Repeat the updates of a policy's recorded batches, from what was before the first.

    Args:
        generation: of the trainer that recorded them; None: the newest.
        until_nonfinite: stop at the first update whose gradient is not finite.
        note: told the number of the batch and the report of each update.

    Raises:
        AclearnError: there are no recorded batches, or they cannot be used.
    """
    ring = _ring(folder, policy, generation)
    repeater = _Repeater(folder, policy, int(ring.name), note, until_nonfinite)
    for file in files_of(ring):
        records = read_file(file)
        repeater.begin(file, next(records, None))
        for record in records:
            repeater.learn(record)
            if repeater.made.bad is not None:
                return repeater.made
    if not repeater.made.batches:
        raise ArgumentError(f"{ring} has no whole batch; let the run learn one")
    repeater.end()
    return repeater.made


def _ring(folder: RunFolder, policy: str, generation: int | None) -> Path:
    policies = recorded_policies(folder)
    if policy not in policies:
        raise ArgumentError(
            f"{folder.path} has no recorded batches of a policy {policy!r}; it has those of "
            f"{', '.join(policies)}"
        )
    rings = {int(path.name): path for path in starts_in(folder.path / RING_FOLDER / policy)}
    chosen = max(rings) if generation is None else generation
    if chosen not in rings:
        raise ArgumentError(
            f"{folder.path} has no recorded batches of generation {chosen}; it has those of "
            f"{', '.join(map(str, sorted(rings)))}"
        )
    return rings[chosen]


class _Repeater:
    """A learner that goes through the records of a ring."""

    def __init__(
        self,
        folder: RunFolder,
        policy: str,
        generation: int,
        note: Callable[[int, UpdateReport], None],
        until_nonfinite: bool,
    ) -> None:
        self._folder, self._policy = folder, policy
        self._note, self._until_nonfinite = note, until_nonfinite
        self.made = Repeated(policy, generation)
        self._learner: Learner | None = None
        self._expected = 0  # number of the next batch
        self._workers: set[int] = set()

    def begin(self, file: Path, record: Record | None) -> None:
        """Take over the beginning of the first file; compare with that of another one."""
        if record is None:  # its writer was killed within it
            return
        data = record.data
        try:
            updates, number = int(data["counters"]["updates"]), int(data["batch"])
            if self._learner is None:
                self._start(record)
                self.made.first = self._expected = number
                self._states.expect_checkpoints(
                    self._folder, self._policy, self.made.generation, self.made.doubts
                )
                return
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{file} does not begin with a trainer's state: {error!r}"
            ) from error
        self._refuse_gap(number)
        self._states.compare(file.name, updates, record.arrays)

    def _start(self, record: Record) -> None:
        data, made = record.data, self.made
        config = config_from_yaml(data["config"], source=f"{self._folder.path}/{RING_FOLDER}")
        search_modules_in(config.run.pythonpath)
        self._config = config = config.of_policy(self._policy)
        device = _device(config, made.doubts)
        architecture = Architecture.from_dict(data["architecture_spec"])
        self._learner = learner = make_learner(config, architecture, device)
        learner.load_state_tensors(record.arrays)
        self._states = RunStates(learner, record.arrays)
        made.comparisons = self._states.comparisons
        self._worker = _Watched(learner.make_worker(int(data["threads"])), self._states.look)
        here = machine_of(device)
        if differing := [
            f"{key} {theirs} there, {here.get(key)} here"
            for key, theirs in data["machine"].items()
            if here.get(key) != theirs
        ]:
            made.exact = False
            made.doubts.append(f"bits may differ: {'; '.join(differing)}")
        if device.type == "cuda":
            made.exact = False
            made.doubts.append("bits may differ: a GPU adds in any order")

    def _refuse_gap(self, number: int) -> None:
        if number != self._expected:
            raise CheckpointError(
                f"{self._folder.path / RING_FOLDER / self._policy}: batch {self._expected} is "
                f"missing before batch {number}; a file was removed or damaged"
            )

    def learn(self, record: Record) -> None:
        """Make the updates of a recorded batch."""
        assert self._learner is not None
        learner, worker, trainer = self._learner, self._worker.worker, self._config.trainer
        number = int(record.data["batch"])
        self._refuse_gap(number)
        self._doubt(record.data)
        self._set_random(record.arrays)
        learner.set(**record.data["settings"])
        learner.adopt()
        observation = learner.architecture.observation
        batch = batch_of(record.arrays, record.data, worker, observation, learner.device)
        # rows are known by their numbers in minibatches too
        rows = torch.arange(batch.valid.numel(), device=learner.device).view(batch.valid.shape)
        batch = replace(batch, places=rows)

        def note(report: UpdateReport) -> None:
            self.made.updates += report.applied
            self.made.refused += not report.applied
            self._note(number, report)
            if self._until_nonfinite and not report.applied:
                raise _Stopped

        try:
            learner.learn(
                batch, worker, note, minibatches=trainer.minibatches, epochs=trainer.epochs
            )
        except _Stopped:
            newest = self._worker.newest
            assert newest is not None
            self.made.bad = BadUpdate(
                number,
                int(learner.state.updates),
                int(newest.steps),
                culprits_of(newest, batch, worker),
            )
            return
        self._expected, self.made.batches = number + 1, self.made.batches + 1
        self._states.look()

    def _doubt(self, data: dict[str, Any]) -> None:
        """Say why bits may differ from this batch on."""
        assert self._learner is not None
        made, number = self.made, data["batch"]
        before = len(self._workers)
        self._workers.add(data["worker"])
        if before == 1 < len(self._workers):
            made.exact = False
            made.doubts.append(
                f"bits may differ from batch {number} on: several workers learned "
                "(trainer.workers), so that updates came between a gradient and its application; "
                "here they follow one another"
            )
        updates = int(self._learner.state.updates)
        if made.exact and data["updates"] != updates:
            made.exact = False
            made.doubts.append(
                f"bits differ from batch {number} on: {data['updates']} updates came before it, "
                f"and the repetition made {updates}; a worker had failed within an earlier batch"
            )

    def _set_random(self, arrays: Tensors) -> None:
        assert self._learner is not None
        for name, generator in self._learner.state.generators.items():
            state = torch.from_numpy(np.array(arrays[f"random/{name}"]))
            if len(state) == len(generator.get_state()):  # of the same kind of device
                generator.set_state(state)
        torch.set_rng_state(torch.from_numpy(np.array(arrays["random/torch"])))

    def end(self) -> None:
        """Say which checkpoints are newer than the last recorded batch."""
        assert self._learner is not None
        updates = int(self._learner.state.updates)
        if (newest := self._states.newest) > updates:
            self.made.doubts.append(
                f"the newest checkpoint, after update {newest}, is newer than the last recorded "
                f"batch, which ends at update {updates}: the recorder had ended, and the updates "
                "between them cannot be repeated"
            )


class _Watched:
    """A worker, and the batch of its newest gradient.

    Args:
        look: called before each part of a batch is computed.
    """

    def __init__(self, worker: GradientWorker, look: Callable[[], None]) -> None:
        self.worker = worker
        self.newest: Batch | None = None
        self._differentiate = worker.differentiate
        worker.watch(look)
        worker.differentiate = self._noted  # type: ignore[method-assign]

    def _noted(self, batch: Batch, steps: Any) -> Sums:
        self.newest = batch
        return self._differentiate(batch, steps)


def _device(config: Config, doubts: list[str]) -> torch.device:
    """The configured device, or the CPU where there is none such here."""
    try:
        return device_of(config, 0)
    except ConfigError as error:
        doubts.append(f"{error}; the updates are repeated on the CPU")
        return torch.device("cpu")
