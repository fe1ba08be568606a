"""A tuner made from the configuration."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aclearn.config import Config
from aclearn.control.tuner.tuner import Tuner
from aclearn.runs import RunFolder
from aclearn.runs.tuner_log import open_tuner_log
from services.monitor.tuned_counts import TUNED_FILE, TunedKey, TunedSettings, tuned_key
from services.monitor.tuner_plugin import Show, Tuning, counts_in_words


def open_tuning(
    config: Config,
    folder: RunFolder,
    memory: TunedSettings,
    *,
    clock: Callable[[], float],
    time_s: Callable[[float], float],
    show: Show | None = None,
) -> Tuning | None:
    """The tuner of a run; None when it is off, or there is nothing that it may change.

    It begins with what the run kept last, when it is resumed or its monitor was started again, else
    with what `memory` knows of this machine, else with the configured counts.

    Raises:
        RunFolderError: its log cannot be opened.
    """
    tuner = config.tuner
    most = {
        "predictors": tuner.max_predictors,
        "trainers": tuner.max_trainers,
        "actors": tuner.max_actors,
    }
    most = {name: bound for name, bound in most.items() if name in tuner.counts}
    asked = config.actors.inference == "predictor"
    if not asked:
        most.pop("predictors", None)  # there are none
    if not tuner.enabled or not most:
        return None
    configured = {
        "predictors": config.predictor.workers if asked else 0,
        "trainers": config.trainer.workers,
        "actors": config.actors.processes,
    }
    start = {name: configured[name] for name in most}
    log = open_tuner_log(folder.path)
    key = tuned_key(config)
    found = memory.find(key) if tuner.remember else None
    last = log.last_line or {}
    note = None
    if _fits(last.get("kept"), most):
        start = dict(last["kept"])
    elif _fits(found, most) and found is not None:
        start = dict(found)
        counts = counts_in_words(start)
        note = f"tuner: starts from {counts}, the best of an earlier run ({TUNED_FILE})"
    made = Tuner(
        start,
        most,
        every_s=tuner.every_s,
        settle_s=tuner.settle_s,
        longest_gap_s=tuner.longest_gap_s,
        temperature=tuner.temperature,
        cooling=tuner.cooling,
        restart_search_share=tuner.restart_search_share,
        clock=clock,
        rng=random.Random(config.run.seed),
    )
    temperature, decided = last.get("temperature"), last.get("decision")
    if isinstance(temperature, int | float) and 0.0 <= temperature <= tuner.temperature:
        made.temperature = float(temperature)
    tuning = Tuning(
        made,
        objective=tuner.objective,
        actors=config.actors.processes,
        log=log,
        time_s=time_s,
        fixed={name: count for name, count in configured.items() if name not in most},
        heartbeat_every_s=config.monitor.heartbeat_every_s,
        decided=decided if isinstance(decided, int) and decided > 0 else 0,
        remember=_remembering(memory, key) if tuner.remember else None,
        show=show,
    )
    if note is not None:
        tuning.note(note)
    return tuning


def tuned_file(config: Config) -> Path:
    """Where the best counts are remembered: beside the runs, which share it."""
    return Path(config.run.dir) / TUNED_FILE


def _remembering(
    memory: TunedSettings, key: TunedKey
) -> Callable[[Mapping[str, int], float], bool]:
    def remember(counts: Mapping[str, int], rate: float) -> bool:
        return memory.remember(key, counts, rate)

    return remember


def _fits(counts: Any, most: Mapping[str, int]) -> bool:
    """Whether counts from a file may be used: the same names, within the bounds."""
    return (
        isinstance(counts, dict)
        and counts.keys() == most.keys()
        and all(type(counts[name]) is int and 1 <= counts[name] <= most[name] for name in most)
    )
