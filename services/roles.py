"""The table of roles: the only place that knows the kinds of process of a run.

The command line, the launcher, the monitor, containers and the docs read it. A new role is a module
with its entry point and an entry in `ROLES`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aclearn.config import Config
from services.wiring import SUPERVISOR, asked_by, endpoints_of

#: Largest number in a process's name: one message lists all names.
MOST_NUMBER: Final = 999_999


def _never(config: Config) -> None:
    return None


def _one(config: Config) -> int:
    return 1


@dataclass(frozen=True)
class RoleSpec:
    """One kind of process.

    Attributes:
        name: on the command line, in the names of processes (actor-3) and of metrics.
        entry_point: "module:function" that takes a `RoleContext` and makes the role's `Role`;
            imported only in the role's own process.
        processes_key: key of the number of its processes; empty if a run has exactly one.
        unused: why the configuration does not use it, in a sentence; None if it does.
        hears: the roles without whose heartbeats it cannot work.
        needs_folder: whether it writes into the run folder; of several processes number 0 does.
        together: whether its processes are ranks of one group: they are numbered from 0, none is
            missing, and they start again together.
        needs_environment: whether it needs the spec of the environments.
        environments: number that it makes or waits for.
        check: "module:function" that takes a `RoleContext` and raises `AclearnError` if this
            machine cannot run the role; empty for no check.
        threads: of the CPU in one process (OMP_NUM_THREADS).
        nice: how far its process lowers its priority where cores are scarce.
        imports_torch: whether its process may load torch.
        tuned_processes: the tuner's count of its processes; empty if it has none.
        tuned_workers: the tuner's count of a process's workers; empty if it has none.
        optional: whether the run continues after it died too often.
        stops_first: whether it stops before the others, since its later output would not be
            learned.
    """

    name: str
    entry_point: str
    processes_key: str = ""
    unused: Callable[[Config], str | None] = _never
    hears: tuple[str, ...] = ()
    needs_folder: bool = False
    together: bool = False
    needs_environment: bool = True
    environments: Callable[[Config], int] = _one
    check: str = ""
    threads: Callable[[Config], int] = _one
    nice: Callable[[Config], int] = lambda _: 0
    imports_torch: Callable[[Config], bool] = lambda _: False
    tuned_processes: str = ""
    tuned_workers: str = ""
    optional: bool = False
    stops_first: bool = False

    def rank_for(self, client: int, config: Config) -> str:
        """Name of the process to which the client of that number is dealt out."""
        return f"{self.name}-{client % self._configured(config)}"

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Names of its servers."""
        return endpoints_of(self.name)

    def needs(self, config: Config) -> tuple[str, ...]:
        """The roles that it cannot work without."""
        return (*self.hears, *asked_by(self.name, config))

    def fixed(self, config: Config) -> int | None:
        """Exact number of its processes, 0 being the first; None if any number may join."""
        return self._configured(config) if self.together or not self.processes_key else None

    def processes(self, config: Config) -> int:
        """Number of processes that `aclearn train` starts; 0 if the configuration uses none."""
        return 0 if self.unused(config) else self._configured(config)

    def most_processes(self, config: Config) -> int:
        """Largest number of processes that the tuner may want, even if none is used."""
        tuner = config.tuner
        tuned = tuner.enabled and self.tuned_processes in tuner.counts
        return max(self._configured(config), tuner.max_actors if tuned else 0)

    def _configured(self, config: Config) -> int:
        if self.together:
            return config.ranks
        key = self.processes_key
        return int(operator.attrgetter(key)(config)) if key else 1


def _no_predictor(config: Config) -> str | None:
    if config.actors.inference == "predictor":
        return None
    return "no predictor is needed: actors choose their actions (actors.inference is local)"


def _no_actors(config: Config) -> str | None:
    if config.resident.envs is None:
        return None
    return "no actor is needed: the trainer steps the environments (resident.envs)"


def _no_compressor(config: Config) -> str | None:
    if config.compressor.rungs:
        return None
    return "no compressor is needed: actors run the policy itself (compressor.chain is empty)"


def _no_evaluator(config: Config) -> str | None:
    if config.evaluator.enabled:
        return None
    return "no evaluator is needed: nothing asks for one (evaluator.every_s is null)"


def _runs_torch(config: Config, runtime: str) -> bool:
    rungs = config.compressor.rungs
    if not rungs:
        return runtime != "onnx"
    return any(chain[-1] != "onnx" for chain in rungs if chain)


MONITOR: RoleSpec = RoleSpec(
    "monitor",
    "services.monitor.main:MonitorRole",
    hears=("trainer",),
    needs_folder=True,
    needs_environment=False,
    check="services.start.preflight:check_monitor",
)
TRAINER: RoleSpec = RoleSpec(
    "trainer",
    "services.trainer.main:make_trainer_role",
    processes_key="trainer.processes",
    needs_folder=True,
    together=True,
    check="services.start.preflight:check_trainer",
    imports_torch=lambda _: True,
    tuned_workers="trainers",
)
PREDICTOR: RoleSpec = RoleSpec(
    "predictor",
    "services.predictor.main:make_predictor",
    processes_key="predictor.processes",
    unused=_no_predictor,
    check="services.start.preflight:check_predictor",
    threads=lambda config: config.predictor.threads,
    imports_torch=lambda config: _runs_torch(config, config.predictor.runtime),
    tuned_workers="predictors",
)
COMPRESSOR: RoleSpec = RoleSpec(
    "compressor",
    "services.compressor.main:make_compressor",
    processes_key="compressor.processes",
    unused=_no_compressor,
    nice=lambda config: config.actors.nice,
    imports_torch=lambda _: True,
)
ACTOR: RoleSpec = RoleSpec(
    "actor",
    "services.actor.main:make_actor",
    processes_key="actors.processes",
    unused=_no_actors,
    environments=lambda config: config.actors.groups * config.actors.envs_per_group,
    nice=lambda config: config.actors.nice,
    imports_torch=lambda config: (
        config.actors.inference == "local" and _runs_torch(config, config.actors.runtime)
    ),
    tuned_processes="actors",
    stops_first=True,
)
EVALUATOR: RoleSpec = RoleSpec(
    "evaluator",
    "services.evaluator.main:make_evaluator",
    unused=_no_evaluator,
    environments=lambda config: config.evaluator.envs,
    nice=lambda config: config.actors.nice,
    imports_torch=lambda config: _runs_torch(config, "onnx"),
    optional=True,
)

ROLES: dict[str, RoleSpec] = {
    spec.name: spec for spec in (MONITOR, TRAINER, PREDICTOR, COMPRESSOR, ACTOR, EVALUATOR)
}
"""Every role by name, in order of their start."""

KEY_ROLES = (*ROLES, SUPERVISOR)
"""What a key can be for."""

WRITERS = tuple(spec.name for spec in ROLES.values() if spec.needs_folder)
"""Roles that write into a run folder."""


def roles_of(config: Config) -> set[str]:
    """Names of the roles that a run of this configuration has processes of."""
    return {spec.name for spec in ROLES.values() if spec.processes(config)}
