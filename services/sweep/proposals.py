"""Optuna's side of a sweep: proposals, judgements and their one file."""

from __future__ import annotations

import importlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from aclearn.errors import ConfigError, RunFolderError
from services.sweep.settings import Search, SweepSettings

DATABASE: Final = "sweep.db"
_STUDY: Final = "sweep"
_SAMPLERS: Final = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "gp": "GPSampler",
    "cmaes": "CmaEsSampler",
    "nsgaii": "NSGAIISampler",
    "qmc": "QMCSampler",
}
#: Of a trial: why it failed, and the agent steps of the judgement at which it is to end.
_REASON, _POOR_AT = "reason", "poor_at"
State = Literal["running", "complete", "pruned", "fail", "waiting"]


class Trial(NamedTuple):
    """A configuration that is tried.

    Attributes:
        values: dotted key → value.
        judged: agent steps → mean fitness over its seeds, by the steps of each judgement.
        reason: why it failed.
    """

    number: int
    values: Mapping[str, Any]
    state: State
    judged: Mapping[int, float]
    reason: str = ""

    @property
    def newest(self) -> float | None:
        """The fitness of the newest judgement."""
        return self.judged[max(self.judged)] if self.judged else None


def import_optuna() -> Any:
    """The module `optuna`.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise ConfigError(
            'sweep: Optuna is not installed; install it with pip install "aclearn[sweep]"'
        ) from error
    optuna.logging.set_verbosity(logging.ERROR)
    return optuna


class Proposals:
    """The study in a sweep's folder; each change is on disk when a method returns.

    Raises:
        ConfigError: Optuna, or a package of the sampler, is missing.
        RunFolderError: the file cannot be read or written, also from each method.
    """

    def __init__(self, folder: Path, settings: SweepSettings) -> None:
        self._optuna = import_optuna()
        self._sql_error = importlib.import_module("sqlalchemy.exc").SQLAlchemyError
        self._settings, self._path = settings, folder / DATABASE
        self._spaces = {
            key: _distribution(self._optuna, each, whole=settings.is_whole(key))
            for key, each in settings.search.items()
        }
        with self._disk():
            storage = self._optuna.storages.RDBStorage(f"sqlite:///{self._path}")
            self._study = self._optuna.create_study(
                study_name=_STUDY,
                storage=storage,
                direction="maximize",
                load_if_exists=True,
                pruner=_pruner(self._optuna.pruners, settings),
            )
            # a resumed sampler must not begin with the same numbers again
            seed = (settings.seed + 7919 * len(self._study.trials)) % 2**31
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # some samplers say that they are new
                    name = _SAMPLERS[settings.sampler]
                    self._study.sampler = getattr(self._optuna.samplers, name)(seed=seed)
            except ImportError as error:
                raise ConfigError(
                    f"sampler: {settings.sampler} needs a package: {error}"
                ) from error

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except (self._optuna.exceptions.StorageInternalError, self._sql_error, OSError) as error:
            cause = str(error.__cause__ or error).partition("\n")[0]
            raise RunFolderError(
                f"{self._path} cannot be read or written ({cause}); free space on its disk, then "
                "continue with --resume"
            ) from error

    def trials(self) -> list[Trial]:
        """All trials so far, in order."""
        with self._disk():
            return [self._plain(each) for each in self._study.get_trials(deepcopy=False)]

    def importance(self) -> dict[str, float]:
        """Key → share of what its values explain of the fitness; empty if too little is known."""
        made = self._optuna.importance
        with self._disk(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = made.get_param_importances(
                    self._study, evaluator=made.PedAnovaImportanceEvaluator()
                )
            except (ValueError, RuntimeError):  # too few trials, or all are alike
                return {}
        return {key: float(share) for key, share in found.items()}

    def propose(self) -> Trial:
        """Begin a new trial."""
        with self._disk():
            number = int(self._study.ask(self._spaces).number)
        return self.trials()[number]

    def with_all_values(self, number: int) -> Trial:
        """A running trial; one that a kill has left with some values gets the others."""
        with self._disk():
            trial = self._running(number)
            for key, space in self._spaces.items():
                trial._suggest(key, space)  # as it is, if it has one
        return self.trials()[number]

    def judge(self, number: int, steps: int, fitness: float) -> bool:
        """Report a judgement; returns whether the trial is to end early.

        The verdict is on disk before the judgement: a pruner that halves writes what it compares
        with when it is asked, and answers otherwise when it is asked again after a kill.
        """
        with self._disk():
            if self._would_end(number, steps, fitness):
                self._running(number).set_user_attr(_POOR_AT, steps)
            self._running(number).report(fitness, steps)
        return self.is_poor(number)

    def is_poor(self, number: int) -> bool:
        """Whether a trial is to end early, by its newest judgement."""
        with self._disk():
            trial = self._running(number)
            trial.should_prune()  # writes what later trials are compared with
            found = self._study.get_trials(deepcopy=False)[number]
            return bool(found.user_attrs.get(_POOR_AT) == found.last_step)

    def _would_end(self, number: int, steps: int, fitness: float) -> bool:
        """The pruner's verdict on a judgement, which is not written."""
        memory = self._optuna.storages.InMemoryStorage()
        self._optuna.copy_study(
            from_study_name=_STUDY, from_storage=self._study._storage, to_storage=memory
        )
        study = self._optuna.load_study(
            study_name=_STUDY, storage=memory, pruner=self._study.pruner
        )
        trial = self._optuna.trial.Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)
        trial.report(fitness, steps)
        return bool(trial.should_prune())

    def complete(self, number: int, fitness: float) -> None:
        """End a trial with its last judgement."""
        with self._disk():
            self._study.tell(number, fitness)

    def prune(self, number: int) -> None:
        """End a trial early."""
        with self._disk():
            self._study.tell(number, state=self._optuna.trial.TrialState.PRUNED)

    def fail(self, number: int, reason: str) -> None:
        """End a trial that has no fitness; samplers do not count it."""
        with self._disk():
            self._running(number).set_user_attr(_REASON, reason)
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)

    def _running(self, number: int) -> Any:
        found = self._study.get_trials(deepcopy=False)[number]
        return self._optuna.trial.Trial(self._study, found._trial_id)

    def _plain(self, found: Any) -> Trial:
        values = {
            key: _value(self._settings.search[key], value) for key, value in found.params.items()
        }
        judged = {int(steps): float(value) for steps, value in found.intermediate_values.items()}
        reason = found.user_attrs.get(_REASON, "")
        return Trial(found.number, values, found.state.name.lower(), judged, reason)


def _pruner(pruners: Any, settings: SweepSettings) -> Any:
    """Halving compares at resources of agent steps: its first is that of the first judgement."""
    first = settings.until(1)
    match settings.pruner:
        case "none":
            return pruners.NopPruner()
        case "median":
            return pruners.MedianPruner()
        case "halving":
            return pruners.SuccessiveHalvingPruner(min_resource=first)
        case "hyperband":
            return pruners.HyperbandPruner(min_resource=first, max_resource=settings.steps)


def _distribution(optuna: Any, search: Search, *, whole: bool) -> Any:
    made = optuna.distributions
    if search.choices is not None:
        return made.CategoricalDistribution([_encoded(each) for each in search.choices])
    low, high = search.ends
    log = search.log is not None
    if whole:
        return made.IntDistribution(int(low), int(high), log=log)
    return made.FloatDistribution(low, high, log=log)


def _encoded(choice: Any) -> Any:
    """Optuna takes only plain values."""
    plain = choice is None or isinstance(choice, bool | int | float | str)
    return choice if plain else json.dumps(choice)


def _value(search: Search, value: Any) -> Any:
    if search.choices is None:
        return value
    return next(each for each in search.choices if _encoded(each) == value)
