"""Populations as processes: a killed driver, a killed member, a signal, a member that diverges."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from aclearn.population import Lineage
from aclearn.population.file import read_lineage
from aclearn.runs import load_newest, read_metrics
from services.evaluator.evaluate import evaluate
from tests.support.metrics_lines import check_lines
from tests.support.system import CARTPOLE, RESIDENT, Command, System
from tests.support.waiting import wait_for

_MEMBER = "services.population.member"
_SMALL: dict[str, Any] = {
    "evaluator": {"episodes": 4},
    "run": {"name": "p", "metrics_every_s": 0.25, "checkpoint_every_s": 1.0},
    "population": {
        "members": 2,
        "rounds": 2,
        "round_steps": 6000,
        "mutate": {"optimiser.learning_rate": [1e-4, 1e-2]},
    },
}


def _lineage(folder: Path) -> Lineage | None:
    return read_lineage(folder) if (folder / "population.json").exists() else None


def _wait_for_round(command: Command, folder: Path, number: int) -> Lineage:
    """Wait until a member learns in this round."""

    def learns() -> Lineage | None:
        lineage = _lineage(folder)
        if lineage is None or lineage.now.number < number or not lineage.now.begun:
            return None
        for member in lineage.now.waiting:
            path = folder / f"member-{member.number}" / "metrics.jsonl"
            lines = read_metrics(path) if path.exists() else []
            begun = member.until - 6000
            if lines and begun + 500 < lines[-1]["env_steps"] < member.until:
                return lineage
        return None

    return wait_for(learns, f"round {number}", within_s=180.0, context=lambda: command.output)


def _members(system: System) -> list[psutil.Process]:
    return [each for each in system.living() if _MEMBER in each.cmdline()]


_PACED = """
import time
from pathlib import Path

import gymnasium

_SLOWLY = Path(__file__).with_name("slowly")


class Paced(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action):
        if _SLOWLY.exists():
            time.sleep(0.002)
        return super().step(action)
"""


def test_a_killed_driver_and_a_killed_member_lose_the_present_round_at_most(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    (system.folder / "paced.py").write_text(_PACED)
    monkeypatch.syspath_prepend(system.folder)
    actors = {"processes": 1, "envs_per_group": 4}
    config = system.config(CARTPOLE, env={"id": "paced:Paced"}, actors=actors, **_SMALL)
    folder, slowly = system.folder / "runs" / "p", system.folder / "slowly"
    command = system.command("evolve", config, "--at-once", "1")
    wait_for(
        lambda: (now := _lineage(folder)) and now.now.number == 2,
        "the second round",
        within_s=180.0,
        context=lambda: command.output,
    )
    slowly.touch()  # so that its members still learn when they are seen to, and killed
    before = _wait_for_round(command, folder, 2)
    command.process.kill()
    command.process.wait(timeout=60.0)
    slowly.unlink()
    system.wait_until_nothing_lives(within_s=15.0)

    resumed = system.command("evolve", config, "--resume", "--at-once", "1")
    wait_for(lambda: _members(system), "a member", within_s=120.0, context=lambda: resumed.output)
    _members(system)[0].kill()
    assert resumed.wait(within_s=300.0) == 0, resumed.output
    after = read_lineage(folder)
    assert after.rounds[0] == before.rounds[0]  # what was judged before stays
    assert [each.status for each in after.now.members] == ["trained"] * 2
    assert after.now.number == 2 and sum(each.restarts for each in after.now.members) == 1
    for member in after.now.members:
        run = folder / f"member-{member.number}"
        check_lines(read_metrics(run / "metrics.jsonl"))
        saved = load_newest(run / "checkpoints").state["account"]
        assert saved["env_steps"] == member.env_steps >= member.until
        # the present interval alone was lost
        assert member.env_steps < member.until + 2000
    assert "population p ended: rounds" in resumed.output
    assert "Traceback" not in resumed.output
    assert evaluate(folder / "best", episodes=1).returns
    system.wait_until_nothing_lives(within_s=5.0)


def test_a_signal_ends_every_member_with_a_checkpoint_and_they_resume(system: System) -> None:
    config = system.config(RESIDENT, **_SMALL)
    folder = system.folder / "runs" / "p"
    command = system.command(
        "evolve", config, "--at-once", "2", "population.round_steps=10_000_000"
    )

    def learn() -> bool:
        runs = (folder / f"member-{n}" / "metrics.jsonl" for n in range(2))
        lines = [read_metrics(path) if path.exists() else [] for path in runs]
        return all(each and each[-1]["learned_steps"] > 0 for each in lines)

    wait_for(learn, "both learn", within_s=180.0, context=lambda: command.output)
    command.signal(signal.SIGTERM)
    assert command.wait(within_s=12.0) == 128 + signal.SIGTERM, command.output
    assert "--resume continues it" in command.output
    system.wait_until_nothing_lives(within_s=5.0)
    for number in range(2):
        assert load_newest(folder / f"member-{number}" / "checkpoints") is not None
    refused = system.command("evolve", config, "--resume")
    assert refused.wait(within_s=60.0) == 64
    assert "population.round_steps is 10000000 there, 6000 here" in refused.output


_EXPLODING = '''
import torch
from aclearn.algorithms import Loss, LossSums
from aclearn.config import LossConfig
from aclearn.population import Origin, Selector, best_first


class Config(LossConfig):
    scale: float = 1.0


class Exploding(Loss):
    """Its gradient overflows where the scale does."""

    config_model = Config
    recomputes_targets = True

    def __call__(self, batch, outputs, correction, config):
        zero = torch.zeros(())
        error = torch.where(batch.valid, outputs.values - correction.targets, zero)
        chosen = torch.where(batch.valid, outputs.log_probs * correction.weighted_advantages, zero)
        loss = error.square().sum() - chosen.sum()
        return LossSums(loss * config.scale * config.scale, {"loss": loss})


class OneExplodes(Selector):
    def first(self, members, space, rng):
        return [{"loss.scale": 1.0}, {"loss.scale": 1e30}]

    def select(self, round_, standings, space, rng):
        best = best_first(standings)[0]
        return [Origin(best.member, best.member, best.values) if each.is_dead
                else Origin.stays(each) for each in standings]
'''


def test_a_member_that_diverges_is_replaced(system: System) -> None:
    (system.folder / "exploding.py").write_text(_EXPLODING)
    population = {**_SMALL["population"], "round_steps": 2000, "selector": "exploding:OneExplodes"}
    population["mutate"] = {"loss.scale": [0.5, 1e30]}
    run = {**_SMALL["run"], "deterministic": True}
    config = system.config(
        CARTPOLE,
        **(_SMALL | {"population": population, "run": run}),
        actors={"processes": 1},
        loss={"kind": "exploding:Exploding", "scale": 1.0},
    )
    command = system.command("evolve", config)
    assert command.wait(within_s=180.0) == 0, command.output
    first, second = read_lineage(system.folder / "runs" / "p").rounds
    assert [each.status for each in first.members] == ["trained", "diverged"]
    assert "not finite" in first.members[1].detail
    assert [each.weights_from for each in second.members] == [0, 0]
    assert [each.status for each in second.members] == ["trained"] * 2
    assert "round 1, member 1: diverged" in command.output
