"""The rounds of a sweep: proposals, training, judgements, pruning.

Some trials run side by side, all to their next judgement. Everything is on disk before it counts,
so a kill at any moment loses the present part of the runs that were trained.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from aclearn.config import Config, EvaluatorConfig, PopulationConfig
from aclearn.errors import ConfigError, RoleFailure, RunFolderError
from aclearn.launch import StopFlag
from aclearn.runs import SWEEP_BEST, SWEEP_FILE, write_atomically
from services.population.engine import Engine, Outcome, Task
from services.population.inheriting import write_member
from services.population.member import read_outcome
from services.sweep.proposals import Proposals, Trial
from services.sweep.settings import SweepSettings

#: Trials of one command without a fitness after which a sweep ends, if no trial has one.
_HOPELESS: Final = 5
_ENDS: Final = dict.fromkeys(("target_return", "max_updates", "max_wall_s"))
Note = Callable[[str], object]


class Sweep:
    """Runs a sweep, from wherever its folder is, to its end.

    Args:
        at_once: gives the number of runs at a time, which may follow a cluster's size.
        note: gets a line for each judgement.
    """

    def __init__(
        self,
        folder: Path,
        settings: SweepSettings,
        proposals: Proposals,
        engine: Engine,
        *,
        at_once: Callable[[], int],
        stop: StopFlag,
        note: Note,
    ) -> None:
        self._folder, self._settings, self._proposals = folder, settings, proposals
        self._engine, self._stop, self._note = engine, stop, note
        self._at_once = at_once
        #: Number of the trial whose configuration is in `SWEEP_BEST`.
        self._written: int | None = None

    def run(self) -> Trial | None:
        """Try configurations until there are enough; returns the best one, None if there is none.

        Raises:
            RoleFailure: no trial can be trained.
            AclearnError: the disk cannot be used.
        """
        self._settle()
        earlier = {each.number for each in self._proposals.trials() if not _runs(each)}
        while not self._stop:
            self._check_hope(least=_HOPELESS, earlier=earlier)
            running = self._running()
            if not running:
                break
            self._train(running)
            self._write_results()
        self._write_results()
        if not self._stop:
            self._check_hope(least=1)
        return best_of(self._proposals.trials())

    def _settle(self) -> None:
        """Do what a killed command has left undone between two writes of the study."""
        for number in [each.number for each in self._proposals.trials() if _runs(each)]:
            trial = self._proposals.with_all_values(number)
            if trial.newest is None:
                continue
            poor = self._proposals.is_poor(number)
            if len(trial.judged) >= self._settings.judgements:
                self._proposals.complete(number, trial.newest)
            elif poor:
                self._proposals.prune(number)

    def _check_hope(self, *, least: int, earlier: Container[int] = ()) -> None:
        """Raise `RoleFailure` if all trials have failed, and so many of them not in `earlier`."""
        ended = [each for each in self._proposals.trials() if not _runs(each)]
        newer = [each for each in ended if each.number not in earlier]
        if len(newer) >= least and all(each.state == "fail" for each in ended):
            reasons = "\n".join(f"  trial {each.number}: {each.reason}" for each in newer[:5])
            raise RoleFailure(
                f"none of {len(ended)} trials of {self._folder} could be trained; mend the cause "
                "and continue with --resume, which tries those that are left of trials, or begin "
                "another sweep with another configuration or smaller ranges (search):\n"
                f"{reasons}"
            )

    def _running(self) -> list[Trial]:
        """The trials of the next round: those that run, and new ones in place of the others."""
        trials = self._proposals.trials()
        running = [each for each in trials if _runs(each)]
        room = max(1, self._at_once() // self._settings.seeds) - len(running)
        left = self._settings.trials - len(trials)
        return running + [self._proposals.propose() for _ in range(min(room, left))]

    def _train(self, trials: Sequence[Trial]) -> None:
        """Train each trial's runs to its next judgement, and judge those that got there."""
        tasks: dict[int, list[Task]] = {}
        for trial in trials:
            try:
                tasks[trial.number] = self._tasks(trial)
            except ConfigError as error:  # each value alone is possible, together they are not
                self._fail(trial, str(error).splitlines()[0])
        outcomes: dict[int, Outcome] = {}
        waiting = []
        for task in (task for each in tasks.values() for task in each):
            known = read_outcome(task.folder, task.round)
            if known is None:
                waiting.append(task)
            else:
                outcomes[task.member] = known
        for outcome in self._engine.run(waiting, self._stop) if waiting else ():
            outcomes[outcome.member] = outcome
        for trial in trials:
            found = [outcomes.get(task.member) for task in tasks.get(trial.number, ())]
            if found and None not in found:
                self._judge(trial, [each for each in found if each is not None])

    def _tasks(self, trial: Trial) -> list[Task]:
        tasks, judgement = [], len(trial.judged) + 1
        given = self._settings.config_of(trial.values)
        for place in range(self._settings.seeds):
            seed = given.run.seed + place
            folder = run_folder(self._folder, trial.number, seed)
            config = given.with_run(
                dir=str(self._folder),
                name=folder.name,
                seed=seed,
                max_env_steps=self._settings.until(judgement),
                **_ENDS,
            )
            write_member(folder, config)
            number = trial.number * self._settings.seeds + place
            tasks.append(Task(number, judgement, folder, config))
        return tasks

    def _judge(self, trial: Trial, outcomes: Sequence[Outcome]) -> None:
        dead = [each for each in outcomes if each.status != "trained"]
        if dead:
            self._fail(trial, f"{dead[0].status}: {dead[0].detail}")
            return
        judgement = len(trial.judged) + 1
        steps, fitness = self._settings.until(judgement), fmean(each.fitness for each in outcomes)
        prune = self._proposals.judge(trial.number, steps, fitness)
        words = f"{self._named(trial)}: {fitness:.4g} after {steps} agent steps"
        if judgement >= self._settings.judgements:
            self._proposals.complete(trial.number, fitness)
            self._note(words)
        elif prune:
            self._proposals.prune(trial.number)
            self._note(f"{words}, pruned")
        else:
            self._note(f"{words} (judgement {judgement} of {self._settings.judgements})")

    def _fail(self, trial: Trial, reason: str) -> None:
        self._proposals.fail(trial.number, reason)
        self._note(f"{self._named(trial)}: {reason}")

    def _named(self, trial: Trial) -> str:
        return f"trial {trial.number} of {self._settings.trials} ({words_of(trial.values)})"

    def _write_results(self) -> None:
        """Write what a person or a page reads: every trial, and the best configuration."""
        trials = self._proposals.trials()
        best = best_of(trials)
        settings = self._settings
        document: dict[str, Any] = {
            "format": 1,
            "config": settings.config,
            "fitness": f"mean return of the evaluator's episodes, over {settings.seeds} seeds",
            "search": settings.model_dump(include={"search"}, exclude_none=True)["search"],
            "trials": [
                {
                    "number": each.number,
                    "state": each.state,
                    "values": each.values,
                    "fitness": each.newest,
                    "judged": each.judged,
                    "runs": sorted(
                        path.name for path in self._folder.glob(f"trial-{each.number}-seed-*")
                    ),
                    "reason": each.reason,
                }
                for each in trials
            ],
            "best": None if best is None else best.number,
            "importance": self._proposals.importance(),
        }
        try:
            write_atomically(self._folder / SWEEP_FILE, json.dumps(document, indent=1).encode())
            if best is not None and best.number != self._written:
                text = _to_train_from(settings.config_of(best.values)).to_yaml()
                write_atomically(self._folder / SWEEP_BEST, text.encode())
                self._written = best.number
        except OSError as error:
            raise RunFolderError(
                f"{self._folder} cannot be written ({error.strerror}); free space on its disk, "
                "then continue with --resume"
            ) from error


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The complete trial with the largest fitness."""
    complete = [each for each in trials if each.state == "complete" and each.newest is not None]
    return max(complete, key=lambda each: each.newest or 0.0, default=None)


def _runs(trial: Trial) -> bool:
    return trial.state == "running"


def words_of(values: Mapping[str, Any]) -> str:
    """Values for the console."""
    shown = (
        (key, f"{value:.3g}" if isinstance(value, float) else json.dumps(value))
        for key, value in values.items()
    )
    return ", ".join(f"{key}={value}" for key, value in shown)


def run_folder(sweep: Path, trial: int, seed: int) -> Path:
    """The run folder of a trial's run."""
    return sweep / f"trial-{trial}-seed-{seed}"


def _to_train_from(config: Config) -> Config:
    # its members stand for a judged run; without them a run has keys of an evaluator only with one
    evaluator = config.evaluator if config.evaluator.enabled else EvaluatorConfig()
    groups = {"population": PopulationConfig(), "evaluator": evaluator}
    return config.model_copy(update=groups).with_run(name=None)
