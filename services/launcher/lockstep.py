"""Deterministic mode: the roles' step functions in lock-step in one process.

Collect one batch's unrolls with the newest policy, learn, publish, again. Nothing runs at the same
time as anything else, so two runs with one seed take the same actions and end with the same bits.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from aclearn.config import Config
from aclearn.control import StopCondition
from aclearn.launch import StopFlag
from aclearn.learning import ParameterStore, RecentObservations
from aclearn.runs import RunFolder
from aclearn.types import EnvSpec
from aclearn.views import open_console
from aclearn.wire import new_incarnation
from services.launcher.lockstep_actor import LockstepActor, LockstepPolicy
from services.monitor.files import MonitorFiles
from services.roles import ACTOR, TRAINER
from services.runtime.policy_factory import architecture_of
from services.runtime.role_metrics import RoleMetrics
from services.runtime.run_clock import moment, started_seconds_ago
from services.trainer.checkpoints import TrainerCheckpoints
from services.trainer.core import Trainer


def run_lockstep(config: Config, folder: RunFolder, spec: EnvSpec, *, stop: StopFlag) -> None:
    """Run the whole configuration in this process until its goal, its bound or a signal.

    Writes what a run of separate processes writes. Weights after N updates depend on the seed
    alone; wall-clock figures and checkpoint times do not.

    Raises:
        AclearnError: the environment, a checkpoint or the disk cannot be used.
    """
    architecture = architecture_of(config, spec)
    store = ParameterStore()
    trainer = Trainer(config, spec, architecture, store)
    checkpoints = TrainerCheckpoints(trainer, folder, config.run)
    checkpoints.resume()
    checkpoints.claim_generation()
    trainer.publish()
    recent = RecentObservations(spec.observation, seed=config.run.seed)
    policy = LockstepPolicy(config, architecture)
    actor = LockstepActor(config, policy)
    incarnations = new_incarnation(), new_incarnation()
    files = MonitorFiles(folder)
    now = time.monotonic()
    begun = now - started_seconds_ago(None, moment(now))
    view = files.open_metrics(begun)
    last_line = files.last_line
    goal = StopCondition.resumed(config.run, last_line)
    metrics = RoleMetrics(meter=None)
    reason: str | None = None
    next_line = now

    def observe() -> str | None:
        heartbeat = metrics.heartbeat(**checkpoints.heartbeat_fields())
        at = time.monotonic()
        said = (TRAINER.name, heartbeat), (ACTOR.name, actor.take_heartbeat())
        for incarnation, (role, each) in zip(incarnations, said, strict=True):
            view.observe_heartbeat(role, incarnation, each, at)
        if view.mean_of_100 is not None:
            checkpoints.offer_best(view.mean_of_100)
        return goal.observe(view.line(at))

    def make_line() -> dict[str, Any]:
        line = view.line(time.monotonic())
        line["best_return"] = checkpoints.best_return
        return line | goal.fields()

    def close_files() -> None:
        try:
            observe()
        finally:
            view.role_gone(incarnations[1])
            files.close(make_line(), view, goal, reason or "failed")

    try:
        with open_console(config.run.bounds(), name=folder.name) as console:
            while reason is None:
                newest = store.newer_than(policy.at)
                if newest is not None:
                    policy.take(newest, recent)
                unrolls = []
                for _ in range(config.trainer.unrolls_per_batch):
                    if trainer.admission.reached is not None:
                        break  # the last batch may be a short one
                    sequence, unroll = actor.collect()
                    refusal = trainer.admission.admit(incarnations[1], sequence, unroll, store.at)
                    if refusal is None:
                        unrolls.append(unroll)
                        recent.add(unroll)
                if unrolls:
                    trainer.learn(unrolls)
                reason = observe() or (str(stop.reason) if stop else None)
                checkpoints.write_if_due()
                if time.monotonic() >= next_line:
                    next_line = time.monotonic() + config.run.metrics_every_s
                    line = make_line()
                    for text in files.write_line(line, view):
                        console.note(text)
                    console.update(line, [])
    finally:
        # each of these must happen, also after a failure of the one before
        with ExitStack() as last_acts:
            last_acts.callback(actor.close)
            last_acts.callback(close_files)
            last_acts.callback(checkpoints.write)
            observe()  # the last checkpoint may be the best
