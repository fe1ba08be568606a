"""Populations whose members are checkpoints of one number, trained without a process."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aclearn.config import Config, config_of_keys
from aclearn.launch import StopFlag
from aclearn.learning.account import StepAccount
from aclearn.population import DEAD
from aclearn.runs import load_newest, save_checkpoint
from aclearn.views.population_console import PopulationConsole
from services.population.engine import Outcome, Task
from services.population.evolution import Evolution, begin
from services.population.folder import PopulationFolder
from services.population.inheriting import steps_in
from services.population.member import write_outcome

RATE = "optimiser.learning_rate"


def population_config(dir: Path, **population: Any) -> Config:
    """Four members whose learning rate evolves, three rounds of 100 steps."""
    settings = {
        "members": 4,
        "rounds": 3,
        "round_steps": 100,
        "mutate": {RATE: [1e-4, 1e-1]},
        **population,
    }
    keys = {"run.dir": str(dir), "run.name": "p", "env.id": "CartPole-v1"}
    return config_of_keys(keys | {f"population.{key}": value for key, value in settings.items()})


def weight(folder: Path) -> float:
    """The one weight of a member's newest checkpoint."""
    return float(load_newest(folder / "checkpoints").tensors["weights/w"])


class StandInEngine:
    """Adds a member's learning rate to its one weight, and to the moment of its optimiser.

    Args:
        fitness: of a task and the weight after it; `DEAD` for a member that diverges.
        stop_at: number of trainings after which the population is asked to stop.
    """

    def __init__(
        self,
        fitness: Callable[[Task, float], float],
        *,
        error: float = 0.0,
        stop_at: int | None = None,
    ) -> None:
        self._fitness, self._error, self._stop_at = fitness, error, stop_at
        self.trained: list[tuple[int, int]] = []

    def run(self, tasks: Sequence[Task], stop: StopFlag) -> Iterator[Outcome]:
        for task in tasks:
            if self._stop_at is not None and len(self.trained) >= self._stop_at:
                stop.set("SIGTERM")
                return
            self.trained.append((task.round, task.member))
            yield self._train(task)

    def close(self) -> None:
        pass

    def _train(self, task: Task) -> Outcome:
        newest = load_newest(task.folder / "checkpoints")
        if newest is not None and steps_in(task.folder) >= task.config.run.max_env_steps:
            return self._judge(task, newest.path)  # a killed driver's member has reached the end
        (task.folder / "logs").mkdir(exist_ok=True)
        (task.folder / "logs" / f"round-{task.round}.log").write_text("trained")
        rate = task.config.optimiser.learning_rate
        own = float(task.member) if newest is None else float(newest.tensors["random/torch"])
        before = 0.0 if newest is None else float(newest.tensors["weights/w"])
        steps = task.config.run.max_env_steps + 3
        account = StepAccount().state() | {"env_steps": steps}
        updates = 1 if newest is None else newest.label + 1
        after = before + rate
        path = save_checkpoint(
            task.folder / "checkpoints",
            tensors={
                "weights/w": np.array(after),
                "optimiser/w/exp_avg": np.array(-after),
                "totals": np.array([after, after, steps, updates]),
                "random/torch": np.array(own),
            },
            state={
                "architecture": "a",
                "policy": "default",
                "counters": {"updates": updates},
                "account": account,
                "judged": None,
            },
            label=updates,
            keep=task.config.run.checkpoints_kept,
        )
        return self._judge(task, path)

    def _judge(self, task: Task, path: Path) -> Outcome:
        fitness, steps = self._fitness(task, weight(task.folder)), steps_in(task.folder)
        outcome = Outcome(task.member, "trained", fitness, self._error, steps, path.stem)
        if fitness == DEAD:
            outcome = Outcome(task.member, "diverged", DEAD, env_steps=steps, detail="not finite")
        write_outcome(task.folder, task.round, outcome)
        return outcome


def evolve(
    config: Config, engine: StandInEngine, *, stop: StopFlag | None = None, **arguments: Any
) -> tuple[PopulationFolder, str | None, str]:
    """Run a population, or continue it; its folder, why it is over, and what the console said."""
    path = Path(config.run.dir) / str(config.run.name)
    folder = (
        PopulationFolder.open(path, config)
        if (path / "population.json").exists()
        else PopulationFolder.create(config, begin(config))
    )
    said = io.StringIO()
    console = PopulationConsole(config.population.rounds, stream=said)
    try:
        flag = StopFlag() if stop is None else stop
        reason = Evolution(folder, engine, console, flag, **arguments).run()
    finally:
        folder.close()
    return folder, reason, said.getvalue()
