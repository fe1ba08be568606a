"""The papers' settings: their values, and that each starts and learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from aclearn.config import load_config, shipped_configs
from services.actor.env_groups import make_groups
from services.launcher.in_process_run import InProcessRun
from services.launcher.local_run import open_run_folder

#: NA and ND of each setting's figure; no compressor for the baseline.
_ACTORS_DISTILLERS = {
    "accerl/original": (12, None),
    "accerl/int8": (12, 1),
    "accerl/pruned": (12, 1),
    "accerl/distilled": (12, 4),
    "accerl/distilled_int8": (12, 4),
}
_TABLE_4 = """
    Alien Amidar BeamRider NameThisGame Riverraid Hero SpaceInvaders Breakout RoadRunner BankHeist
    Pong Seaquest
"""
#: The least processes, observations and steps of a run.
_SMALL = (
    "run.deterministic=true",
    "run.max_updates=2",
    "actors.processes=2",
    "trainer.unrolls_per_batch=2",
    "trainer.device=cpu",
    "env.atari.screen_size=40",
)
_SMALL_COMPRESSOR = ("compressor.processes=1", "compressor.observations=8", "compressor.every_s=0")


def test_every_setting_of_the_papers_is_tested() -> None:
    assert {name for name in shipped_configs() if "/" in name} == set(_ACTORS_DISTILLERS)


@pytest.mark.parametrize("name", _ACTORS_DISTILLERS)
def test_table_5_of_accerl(name: str) -> None:
    c = load_config(name)
    actors, distillers = _ACTORS_DISTILLERS[name]
    assert (c.actors.processes, c.actors.unroll_length) == (actors, 5)
    assert c.compressor.processes == (distillers or 1)
    assert bool(c.compressor.chain) == (distillers is not None)
    assert c.actors.groups * c.actors.envs_per_group == 1
    assert 5 * c.actors.envs_per_group * c.trainer.unrolls_per_batch == 160
    assert (c.trainer.workers, c.trainer.amp, c.trainer.epochs) == (1, "off", 1)
    assert (c.optimiser.kind, c.optimiser.learning_rate) == ("adam", 3e-4)
    assert (c.loss.discount, c.loss.entropy_cost, c.loss.value_cost) == (0.99, 0.02, 0.25)
    assert c.policy.architecture == "accerl-original"


@pytest.mark.parametrize("game", _TABLE_4.split())
def test_a_game_of_table_4_is_named_on_the_command_line(game: str) -> None:
    config = load_config("accerl/int8", [f"env.id=ALE/{game}-v5", "actors.processes=1"])
    [group] = make_groups(config, actor_index=0)
    assert 1 <= group.env.spec.action.count <= 18
    group.env.close()


@pytest.mark.parametrize(
    ("name", "chain"), [*((name, None) for name in _ACTORS_DISTILLERS), ("accerl/distilled", 3)]
)
def test_it_starts_and_learns(name: str, chain: int | None, tmp_path: Path) -> None:
    few = [*_SMALL, *(_SMALL_COMPRESSOR if _ACTORS_DISTILLERS[name][1] else ())]
    if chain:
        few.append(f"compressor.chain=[{{distill: accerl-net{chain}}}, onnx]")
    config = load_config(name, [*few, f"run.dir={tmp_path}"])
    [group] = make_groups(config, actor_index=0)
    group.env.close()
    with open_run_folder(config, resume=False) as folder:
        run = InProcessRun(config, folder, group.env.spec)
        try:
            run.start_all()
            while run.round():
                assert run.rounds < 20_000
        finally:
            run.close()
        summary = folder.read_summary()
    assert summary["updates"] == 2
    assert summary["learned_steps"] == 2 * 2 * config.actors.unroll_length
