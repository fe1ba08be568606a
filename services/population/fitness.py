"""The fitness of a member: what an evaluator would say of its newest policy."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from aclearn.errors import AclearnError
from aclearn.launch import StopFlag
from compress.errors import RefusedTensors
from services.evaluator.play import deviation_of, play, players_of, standard_error_of
from services.evaluator.saved_policy import load_run
from services.role.seeds import Seeds


class NotFinite(AclearnError):
    """Weights or returns that are not finite numbers."""


class Fitness(NamedTuple):
    """A policy's fitness.

    Attributes:
        mean: of the returns of `evaluator.episodes` episodes.
        standard_error: of the mean; 0 of one episode.
        env_steps: agent steps of its run at its checkpoint.
        checkpoint: name of that.
    """

    mean: float
    standard_error: float
    env_steps: int
    checkpoint: str


class _Stopped(Exception):
    """The judgement is not wanted any more."""


def fitness_of(folder: Path, stop: StopFlag) -> Fitness:
    """The fitness of the newest policy in a member's folder; raises once `stop` is set.

    It plays `evaluator.env` as an evaluator does. All members and rounds of a population play the
    same episodes, whose seed is that of `population.seed`.

    Raises:
        NotFinite: its weights or its returns are not finite.
        AclearnError: its checkpoint or its environment cannot be used.
    """
    run = load_run(folder)
    saved, config = run.policy(None), run.config

    def look(_: object) -> None:
        if stop:
            raise _Stopped(stop.reason)

    test = config.evaluator
    try:
        played = play(
            replace(run, config=config.model_copy(update={"env": config.evaluator_env})),
            players_of(run, greedy=test.greedy),
            episodes=test.episodes,
            seed=Seeds(config.population.seed, generation=0).evaluation,
            progress=look,
        )[saved.name]
    except RefusedTensors as error:
        raise NotFinite(f"{saved.checkpoint.path}: {error}") from error
    mean = sum(played.returns) / len(played.returns)
    if not math.isfinite(mean) or not math.isfinite(deviation_of(played.returns)):
        raise NotFinite(f"{saved.checkpoint.path}: returns that are not finite")
    spread = standard_error_of(played.returns)
    return Fitness(mean, spread, saved.env_steps, saved.checkpoint.path.stem)
