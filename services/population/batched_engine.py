"""Members as one batch of models: they play and learn together in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from aclearn.config import Config
from aclearn.errors import CheckpointError, RunFolderError
from aclearn.files import disk_is_full
from aclearn.launch import StopFlag
from aclearn.metrics import MetricsAggregator
from aclearn.population import search_space
from aclearn.runs import RunFolder, is_locked, lock_all
from services.monitor.files import MonitorFiles
from services.population.engine import DiskFull, Outcome, Task
from services.population.inheriting import steps_in, with_values
from services.population.member import judged, wait_until_free
from services.role.metrics import RoleMetrics
from services.roles import TRAINER, WRITERS
from services.trainer.batchable import check_batchable
from services.trainer.members import MemberTrainer, MemberTrainers


class BatchedEngine:
    """All members that differ only in weights and numbers learn in one process.

    Args:
        at_once: most members in a batch; None: all.

    Raises:
        ConfigError: they cannot be batched, or a key of `population.mutate` is none in which the
            members of a batch may differ.
    """

    def __init__(self, config: Config, stop: StopFlag, at_once: int | None = None) -> None:
        self._at_once = at_once
        ends = [
            with_values(config, {each.key: end})
            for each in search_space(config)
            for end in (each.low, each.high)
        ]
        check_batchable([config, *ends])

    def run(self, tasks: Sequence[Task], stop: StopFlag) -> Iterator[Outcome]:
        """Train and judge; see `Engine`."""
        size = self._at_once or len(tasks)
        for first in range(0, len(tasks), size):
            together = tasks[first : first + size]
            for task in together:
                wait_until_free(task.folder, stop)
            if stop and any(is_locked(task.folder) for task in together):
                return
            faults = _trained([task for task in together if _goes_on(task)], stop)
            for task in together:
                go_on = partial(_raise, faults.get(task.member))
                outcome = judged(task.folder, task.member, task.round, stop, go_on)
                if outcome is None:
                    return
                yield outcome

    def close(self) -> None:
        """Nothing: no thread outlives `run`."""


def _trained(tasks: Sequence[Task], stop: StopFlag) -> dict[int, Exception]:
    """Continue these members to the end of the round; the errors of those that have died."""
    if not tasks:
        return {}
    with ExitStack() as closing:
        folders = []
        for task in tasks:
            folder = RunFolder.open(task.folder, lock=partial(lock_all, roles=WRITERS))
            closing.callback(folder.close)
            folders.append(folder)
        runs = [(task.config, folder) for task, folder in zip(tasks, folders, strict=True)]
        trainers = MemberTrainers(runs)
        closing.callback(trainers.close)
        lines = [
            _Lines(config, folder, member)
            for (config, folder), member in zip(runs, trainers.members, strict=True)
        ]
        for each in lines:
            closing.callback(each.close)
        due = time.monotonic()
        while not trainers.over and not stop:
            trainers.step()
            if time.monotonic() >= due:
                due += tasks[0].config.run.checkpoint_every_s
                trainers.save()
                for each in lines:
                    each.write()
        trainers.save()
        for each in lines:
            each.finish(stop.reason or "max_env_steps")
        for task, member in zip(tasks, trainers.members, strict=True):
            if member.fault is None:
                _check_saved(task, member)
        return {
            task.member: member.fault
            for task, member in zip(tasks, trainers.members, strict=True)
            if member.fault is not None
        }


def _check_saved(task: Task, member: MemberTrainer) -> None:
    """Raise if the member's newest learning is in no checkpoint: an older policy would be judged.

    Raises:
        RunFolderError: it could not be written.
    """
    fields = member.checkpoints.heartbeat_fields()
    if fields["counters"]["unsaved_updates"]:
        error = CheckpointError(fields["note"])
        if disk_is_full(error):
            raise DiskFull(task.folder) from error
        raise RunFolderError(
            f"{task.folder}: the checkpoint of the round could not be written: {error}; mend that, "
            "then continue with --resume"
        )


class _Lines:
    """The metrics of one member: those of a trainer that plays itself, without a monitor."""

    def __init__(self, config: Config, folder: RunFolder, member: MemberTrainer) -> None:
        self._seed, self._member = config.run.seed, member
        self._files = MonitorFiles(folder)
        self._metrics: MetricsAggregator = self._files.open_metrics(time.monotonic())
        self._role = RoleMetrics(None)

    def write(self) -> None:
        """Write a line."""
        self._files.write_line(self._line(), self._metrics)

    def finish(self, reason: str) -> None:
        """Write the last line and the summary."""
        self._files.finish(self._line(), self._metrics, reason=reason, seed=self._seed)

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def _line(self) -> dict[str, object]:
        now, trainer = time.monotonic(), self._member.trainer
        fields = self._member.checkpoints.heartbeat_fields()
        counters = fields.pop("counters")
        counters["predictions"] = counters["env_steps"]
        heartbeat = self._role.heartbeat(counters=counters, **trainer.take_episodes(), **fields)
        self._metrics.observe_heartbeat(TRAINER.name, self._member.incarnation, heartbeat, now)
        return self._metrics.line(now)


def _goes_on(task: Task) -> bool:
    """Whether the member has not come to the end of the round."""
    try:
        return steps_in(task.folder) < (task.config.run.max_env_steps or 0)
    except CheckpointError:  # its trainer will say why it cannot go on
        return True


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error
