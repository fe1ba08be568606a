"""The parts `learning` and `training` of `resident.py`: rollout and update, and other programs'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from resident_peers import peer_row, rate
from whole_run import START_WITHIN_S, start_run

from aclearn.config import Config, load_config
from aclearn.resident import resident_env_of
from services.trainer.build import make_trainer

#: Environments of the other program: its default, and more.
_PEERS = (16, 256)
#: A2C with the paper's network and batches, of the shipped configuration of actors.
_A2C = (
    "policy.hidden=[32, 32]",
    "policy.activation=relu",
    "policy.separate_value=false",
    "actors.unroll_length=5",
    "trainer.device=auto",
    "optimiser.schedule=constant",
)
#: Runs of actors: of gymnasium's environments as shipped, and of thousands of resident ones.
_QUEUED = (
    ("gymnasium", 32, ()),
    (
        "resident:CartPole",
        8192,
        ("env.id=resident:CartPole", "actors.processes=2", "actors.envs_per_group=4096"),
    ),
)


def learning_rows(
    device: str, *, envs: int, threads: int | None, seconds: float, peers_python: str | None
) -> Iterator[dict[str, Any]]:
    """A row of each way; `envs` are the resident trainer's."""

    def row(envs: int, by: str, **rates: float) -> dict[str, Any]:
        return {"what": "learning", "env": "CartPole", "envs": envs, "by": by, **rates}

    on_device = [f"resident.envs={envs}", f"resident.device={device}"]
    config = load_config("cartpole", [*_A2C, *on_device])
    yield row(envs, "resident", **trained(config, threads, seconds))
    for by, count, overrides in _QUEUED if device == "cpu" else ():
        rates = _rates_of_run([*_A2C, *overrides], seconds)
        yield row(count, f"actors and queues, {by}", **rates)
    if peers_python is not None:
        for count in _PEERS:
            yield peer_row(peers_python, "stable_baselines3", envs=count, seconds=seconds)


def trained(config: Config, threads: int | None, seconds: float) -> dict[str, float]:
    """Learned steps per second of a trainer with resident environments, by batches."""
    spec = resident_env_of(config).spec(squash=config.env.squash_actions)
    trainer = make_trainer(config, spec, threads=threads)
    trainer.publish()
    worker = trainer.make_worker()

    def work() -> int:
        before = trainer.account.learned_steps
        trainer.step(0.0, worker)
        if trainer.learner.device.type == "cuda":
            torch.cuda.synchronize(trainer.learner.device)
        return trainer.account.learned_steps - before

    found = rate(work, seconds)
    trainer.source.close()
    worker.close()
    return found


def _rates_of_run(overrides: Sequence[str], seconds: float) -> dict[str, float]:
    """Learned steps per second of a whole run, from two seconds after its first update."""
    with start_run(Path("cartpole"), overrides) as run:
        begun = run.wait_for_line(learned=True, within_s=START_WITHIN_S)
        first = run.wait_for_line(at_least_s=begun["time_s"] + 2.0)
        cpu_before = run.cpu_seconds()
        last = run.wait_for_line(at_least_s=first["time_s"] + max(4.0, seconds))
        cpu = sum(value - cpu_before.get(role, 0.0) for role, value in run.cpu_seconds().items())
    steps = last["learned_steps"] - first["learned_steps"]
    return {
        "steps_per_s": round(steps / (last["time_s"] - first["time_s"])),
        "steps_per_cpu_s": round(steps / cpu),
    }
