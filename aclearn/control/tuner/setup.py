"""A tuner made from the configuration."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aclearn.config import Config
from aclearn.control.tuner.plugin import Show, TunerPlugin, counts_in_words
from aclearn.control.tuner.remembered_counts import RememberedCounts
from aclearn.control.tuner.tuner import Tuner
from aclearn.runs.tuner_log import open_tuner_log


def open_tuner(
    config: Config, run_dir: Path, workers_of: Mapping[str, str], *, show: Show | None = None
) -> TunerPlugin | None:
    """The tuner of a run; None when it is off, or there is nothing that it may change.

    It begins with what the run kept last, when it is resumed or its monitor was started again, else
    with what an earlier run of this machine and configuration found best, else with the configured
    counts.

    Args:
        config: of the run.
        run_dir: the run's folder.
        workers_of: count of workers → the role that runs them.
        show: takes each decision.

    Raises:
        RunFolderError: its log cannot be opened.
    """
    tuner = config.tuner
    asked = config.actors.inference == "predictor"
    most = {
        "predictors": tuner.max_predictors if asked else 0,  # where nobody asks there are none
        "trainers": tuner.max_trainers,
        "actors": tuner.max_actors,
    }
    most = {name: bound for name, bound in most.items() if name in tuner.counts and bound}
    if not tuner.enabled or not most:
        return None
    configured = {
        "predictors": config.predictor.workers if asked else 0,
        "trainers": config.trainer.workers,
        "actors": config.actors.processes,
    }
    start = {name: configured[name] for name in most}
    log = open_tuner_log(run_dir)
    memory = RememberedCounts(config) if tuner.remember else None
    last = log.last_line or {}
    found = None if memory is None else memory.read()
    note = None
    if _fits(last.get("kept"), most):
        start = dict(last["kept"])
    elif memory is not None and found is not None and _fits(found, most):
        start = dict(found)
        counts = counts_in_words(start)
        note = f"tuner: starts from {counts}, the best of an earlier run ({memory.path})"
    made = Tuner(
        start,
        most,
        every_s=tuner.every_s,
        settle_s=tuner.settle_s,
        longest_gap_s=tuner.longest_gap_s,
        temperature=tuner.temperature,
        cooling=tuner.cooling,
        restart_search_share=tuner.restart_search_share,
        rng=random.Random(config.run.seed),
    )
    temperature, decided = last.get("temperature"), last.get("decision")
    if isinstance(temperature, int | float) and 0.0 <= temperature <= tuner.temperature:
        made.temperature = float(temperature)
    plugin = TunerPlugin(
        made,
        objective=tuner.objective,
        log=log,
        workers_of=workers_of,
        fixed={name: count for name, count in configured.items() if name not in most},
        heartbeat_every_s=config.monitor.heartbeat_every_s,
        decided=decided if isinstance(decided, int) and decided > 0 else 0,
        memory=memory,
        show=show,
    )
    if note is not None:
        plugin.note(note)
    return plugin


def _fits(counts: Any, most: Mapping[str, int]) -> bool:
    """Whether counts from a file may be used: the same names, within the bounds."""
    return (
        isinstance(counts, dict)
        and counts.keys() == most.keys()
        and all(type(counts[name]) is int and 1 <= counts[name] <= most[name] for name in most)
    )
