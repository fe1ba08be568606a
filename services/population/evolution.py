"""The rounds of a population: who begins with what, training, judgement, selection.

Each step is on disk before the next one begins, and can be repeated: a kill at any moment loses the
present round of those members at most that had not been judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from aclearn.config import Config
from aclearn.errors import ConfigError, RoleFailure
from aclearn.files import disk_is_full
from aclearn.launch import StopFlag
from aclearn.metrics.tensorboard import TensorBoardWriter
from aclearn.population import (
    Lineage,
    Round,
    SearchSpace,
    Selector,
    checked,
    load_selector,
    search_space,
)
from aclearn.population.file import judged_folder
from aclearn.runs import MetricsWriter, is_locked
from aclearn.views.population_console import PopulationConsole
from services.population.engine import DiskFull, Engine, Outcome, Task
from services.population.folder import PopulationFolder
from services.population.inheriting import (
    inherit,
    keep_best,
    keep_judged,
    keep_only,
    member_config,
    set_aside_damaged,
    steps_in,
    with_values,
    write_member,
)
from services.population.member import ROUND_FILE, read_outcome, wait_until_free

#: Gets the metrics of a round; returning False ends the population.
OnRound = Callable[[dict[str, Any]], object]


def begin(config: Config) -> Lineage:
    """The first round of a population.

    Raises:
        ConfigError: a range or the selector cannot be used.
    """
    space, selector = search_space(config), load_selector(config.population.selector)
    _check_ends(config, space)
    members = config.population.members
    assert members is not None
    rng = _generator(config, 0)
    first = [dict(values) for values in selector.first(members, space, rng)]
    for number, values in enumerate(first):
        for fault in space.faults(values) if values else ():
            raise ConfigError(
                f"population.selector {config.population.selector.name!r}: member {number}: {fault}"
            )
    if len(first) != members:
        raise ConfigError(
            f"population.selector {config.population.selector.name!r}: first() must return the "
            f"values of {members} members, got {len(first)}"
        )
    return Lineage.begin(first, round_steps=config.population.round_steps)


def _check_ends(config: Config, space: SearchSpace) -> None:
    for each in space:
        for end in (each.low, each.high):
            try:
                with_values(config, {each.key: end})
            except ConfigError as error:
                raise ConfigError(f"population.mutate: at {each.key} = {end:g}: {error}") from error


def _generator(config: Config, round_: int) -> np.random.Generator:
    """The generator of the selection after a round: the same in a resumed population."""
    return np.random.default_rng((config.population.seed, round_))


class Evolution:
    """Runs a population, from wherever its lineage is, to its end.

    Args:
        on_round: gets the metrics of each round.
    """

    def __init__(
        self,
        folder: PopulationFolder,
        engine: Engine,
        console: PopulationConsole,
        stop: StopFlag,
        *,
        on_round: OnRound | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._engine, self._console, self._stop = folder, engine, console, stop
        self._config, self._on_round, self._clock = folder.config, on_round, clock
        self._selector: Selector = load_selector(self._config.population.selector)
        self._space = search_space(self._config)
        self._looked_at = clock()

    def run(self) -> str | None:
        """Run rounds until the population is over; returns why, None if `stop` was set.

        Raises:
            RoleFailure: all members have died.
            AclearnError: a checkpoint or the disk cannot be used, or a selector is wrong.
        """
        try:
            return self._run()
        except OSError as error:
            if disk_is_full(error):
                raise DiskFull(self._folder.path) from error
            raise

    def _run(self) -> str | None:
        with ExitStack() as stack:
            metrics = stack.enter_context(MetricsWriter(self._folder.metrics_path))
            board = stack.enter_context(TensorBoardWriter(self._folder.path, ("population",)))
            self._revive()
            while True:
                if not self._now.begun and not self._begin_round():
                    return None
                self._train()
                self._save_trained()
                if self._stop:
                    return None
                self._end_round(metrics, board)
                if (reason := self._why_over()) is not None:
                    return reason
                if not self._select():
                    return "every member has stopped"

    @property
    def _now(self) -> Round:
        return self._folder.lineage.now

    def _save(self, now: Round) -> None:
        time_s = self._folder.lineage.time_s + self._clock() - self._looked_at
        self._looked_at = self._clock()
        lineage = self._folder.lineage.with_now(now)
        self._folder.save(lineage.model_copy(update={"time_s": time_s}))

    def _save_trained(self) -> None:
        """Save; once all are judged, their checkpoints stay until the next round is."""
        judged = [] if self._now.waiting else self._now.ranked
        for member in judged:
            kept = judged_folder(self._folder.path, member.number)
            keep_judged(kept, self._folder.member(member.number), member.checkpoint)
        self._save(self._now)
        for member in judged:
            keep_only(judged_folder(self._folder.path, member.number), member.checkpoint)

    def _revive(self) -> None:
        """If no member has survived the round, train again the members that failed in it.

        The user may have mended a fault that all of them had.
        """
        now, before = self._now, self._folder.lineage.rounds[:-1]
        if now.waiting or now.ranked:
            return
        for member in now.members:
            lived = not before or not before[-1].members[member.weights_from].is_dead
            if member.status != "failed" or not lived:
                continue
            (self._folder.member(member.number) / ROUND_FILE).unlink(missing_ok=True)
            now = now.with_member(member.model_copy(update={"status": "waiting", "detail": ""}))
        self._save(now)

    def _begin_round(self) -> bool:
        """Give every member that is to be trained its weights and its configuration.

        Returns:
            False if `stop` was set while a killed member's processes still wrote.
        """
        now, steps = self._now, self._config.population.round_steps
        for member in now.waiting:
            folder = self._folder.member(member.number)
            for each in (folder, self._folder.member(member.weights_from)):
                if each.exists():
                    wait_until_free(each, self._stop)  # a killed process of it may still save
                    if self._stop and is_locked(each):
                        return False
            if member.weights_from != member.number:
                set_aside_damaged(folder, now.number)
            until = steps_in(folder) + steps
            config = member_config(self._config, folder, member.number, member.values, until)
            write_member(folder, config)
            if member.weights_from != member.number:
                before = self._folder.lineage.rounds[-2].members[member.weights_from]
                inherit(
                    folder,
                    self._folder.member(member.weights_from),
                    before.checkpoint,
                    round_=now.number,
                    keep=config.run.checkpoints_kept,
                )
            now = now.with_member(member.model_copy(update={"until": until}))
        self._save(now.model_copy(update={"begun": True}))
        return True

    def _train(self) -> None:
        """Train and judge the members that wait; their folders have the outcomes until a save."""
        tasks = []
        for member in self._now.waiting:
            folder = self._folder.member(member.number)
            if (known := read_outcome(folder, self._now.number)) is not None:
                self._take(known)
                continue
            config = member_config(self._config, folder, member.number, member.values, member.until)
            write_member(folder, config)  # a resumed population may have other keys
            tasks.append(Task(member.number, self._now.number, folder, config))
        for outcome in self._engine.run(tasks, self._stop) if tasks else ():
            self._take(outcome)

    def _take(self, outcome: Outcome) -> None:
        member = self._now.members[outcome.member]
        if outcome.status == "trained":
            after = member.judged(
                outcome.fitness,
                outcome.standard_error,
                outcome.env_steps,
                outcome.checkpoint,
                outcome.restarts,
            )
        else:
            after = member.died(outcome.status, outcome.detail, outcome.env_steps, outcome.restarts)
        self._folder.lineage = self._folder.lineage.with_now(self._now.with_member(after))
        self._console.member(self._now, after)

    def _end_round(self, metrics: MetricsWriter, board: TensorBoardWriter) -> None:
        """Keep the best agent, and tell of the round; refuse a population without a living one."""
        if not self._now.ranked:
            dead = [each for each in self._now.members if each.is_dead]
            causes = "\n".join(f"  member {each.number}: {each.detail}" for each in dead[:5])
            raise RoleFailure(
                f"all {len(dead)} members of {self._folder.path} are dead after round "
                f"{self._now.number}; look into their logs. Mend the cause and continue with "
                "--resume, which trains the failed ones again, or begin another population with "
                f"smaller ranges (population.mutate):\n{causes}"
            )
        if (best := self._folder.lineage.new_best()) is not None:
            member = self._folder.member(best.member)
            keep_best(self._folder.best, member, best.checkpoint, best.fitness)
            self._folder.save(self._folder.lineage.model_copy(update={"best": best}))
        line = metrics_of(self._folder.lineage)
        if (metrics.last_line or {}).get("round", 0) < line["round"]:
            metrics.write(line)
            board.write_at(
                line["round"], {f"population_{name}": each for name, each in line.items()}
            )
            self._console.round(line, self._folder.lineage)
            goes_on = True if self._on_round is None else self._on_round(line)
            if isinstance(goes_on, bool | np.bool_) and not goes_on:
                self._stop.set("on_round")

    def _why_over(self) -> str | None:
        """Why the population is over; None while it goes on."""
        best, run = self._folder.lineage.best, self._config.run
        target = run.target_return if run.stop_at_target else None
        if best is not None and isinstance(target, float) and best.fitness >= target:
            return "target_reached"
        if self._now.number >= self._config.population.rounds:
            return "rounds"
        return None if not self._stop else str(self._stop.reason)

    def _select(self) -> bool:
        """Plan the next round; False if nobody would be trained."""
        settings, standings = self._config.population, self._now.standings
        origins = checked(
            self._selector.select(
                self._now.number, standings, self._space, _generator(self._config, self._now.number)
            ),
            standings,
            self._space,
            name=settings.selector.name,
        )
        following = self._now.next(
            origins, round_steps=settings.round_steps, stop_after=settings.stop_after
        )
        if following.waiting:
            self._folder.save(self._folder.lineage.with_next(following))
        return bool(following.waiting)


def metrics_of(lineage: Lineage) -> dict[str, Any]:
    """The line of `metrics.jsonl` of the last round, whose members have all been judged.

    Figures of each member are mappings from its number; a dead one has no fitness.
    """
    now, best = lineage.now, lineage.best
    fitness = [each.fitness for each in now.ranked if each.fitness is not None]
    keys = {key for member in now.members for key in member.values}

    def of_each(name: str) -> Mapping[str, Any]:
        living = (each for each in now.members if not each.is_dead)
        return {str(each.number): getattr(each, name) for each in living}

    return {
        "round": now.number,
        "time_s": lineage.time_s,
        "env_steps": sum(each.env_steps for each in now.members),
        "fitness_best": max(fitness, default=None),
        "fitness_mean": float(np.mean(fitness)) if fitness else None,
        "fitness_worst": min(fitness, default=None),
        "best_fitness": None if best is None else best.fitness,
        "best_member": None if best is None else best.member,
        "best_round": None if best is None else best.round,
        "living": len(fitness),
        "stopped": sum(each.status == "stopped" for each in now.members),
        "deaths": lineage.deaths,
        "copies": now.copies,
        "restarts": sum(each.restarts for each in now.members),
        "fitness": of_each("fitness"),
        "standard_error": of_each("standard_error"),
        "values": {
            key: {str(each.number): each.values[key] for each in now.members if key in each.values}
            for key in sorted(keys)
        },
    }
