"""The papers' settings: their values, and that each starts and learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from aclearn.config import load_config, shipped_configs
from services.actor.env_groups import make_groups
from services.launcher.in_process_run import InProcessRun
from services.launcher.local_run import open_run_folder
from services.launcher.seed_runs import cores_of

#: NA and ND of each setting's figure; no compressor for the baseline.
_ACTORS_DISTILLERS = {
    "accerl/original": (12, None),
    "accerl/int8": (12, 1),
    "accerl/pruned": (12, 1),
    "accerl/distilled": (12, 4),
    "accerl/distilled_int8": (12, 4),
    "accerl/mix": (8, 4),
}
_TABLE_4 = """
    Alien Amidar BeamRider NameThisGame Riverraid Hero SpaceInvaders Breakout RoadRunner BankHeist
    Pong Seaquest
"""
#: The least processes, observations and steps of a run.
_SMALL = (
    "run.deterministic=true",
    "tuner.enabled=false",
    "trainer.workers=1",
    "run.max_updates=2",
    "actors.processes=2",
    "trainer.unrolls_per_batch=2",
    "trainer.epochs=1",
    "trainer.minibatches=1",
    "trainer.device=cpu",
    "env.atari.screen_size=40",
)
_SMALL_COMPRESSOR = ("compressor.observations=8", "compressor.every_s=0")


def test_every_setting_of_the_papers_is_tested() -> None:
    in_folders = {name for name in shipped_configs() if name.startswith(("accerl/", "ga3c/"))}
    assert in_folders == {*_ACTORS_DISTILLERS, "ga3c/paper", "ga3c/breakout"}


@pytest.mark.parametrize("name", _ACTORS_DISTILLERS)
def test_table_5_of_accerl(name: str) -> None:
    c = load_config(name)
    actors, distillers = _ACTORS_DISTILLERS[name]
    assert (c.actors.processes, c.actors.unroll_length) == (actors, 5)
    links = [link for link in c.compressor.chain if isinstance(link, dict)]
    workers = [link["distill"].get("workers") for link in links if "distill" in link]
    assert (c.compressor.processes, workers or [1]) == (1, [distillers or 1])
    assert bool(c.compressor.chain) == (distillers is not None)
    assert cores_of(c) == actors + 1 + (distillers or 0)
    assert c.actors.groups * c.actors.envs_per_group == 1
    assert 5 * c.actors.envs_per_group * c.trainer.unrolls_per_batch == 160
    assert (c.trainer.workers, c.trainer.amp, c.trainer.epochs) == (1, "off", 1)
    assert (c.optimiser.kind, c.optimiser.learning_rate) == ("adam", 3e-4)
    assert (c.loss.discount, c.loss.entropy_cost, c.loss.value_cost) == (0.99, 0.02, 0.25)
    assert c.policy.architecture == "accerl-original"


def test_the_setting_of_ga3c() -> None:
    c = load_config("ga3c/paper")
    assert (c.actors.processes, c.actors.inference) == (32, "predictor")
    assert (c.predictor.workers, c.trainer.workers) == (2, 2)
    assert c.actors.groups * c.actors.envs_per_group * c.trainer.unrolls_per_batch == 1
    assert c.actors.unroll_length == 5
    assert (c.loss.discount, c.loss.entropy_cost, c.loss.value_cost) == (0.99, 0.01, 1.0)
    assert [each.name for each in c.correctors] == ["no_correction", "epsilon_correction"]
    assert c.correctors[1].arguments.epsilon == 1e-6
    assert c.correctors[1].arguments.form == "max"  # tf.log(tf.maximum(p, LOG_EPSILON))
    # the gradient of a sum over 5 steps is 5 times ours, so ε under the root is 25 times ours
    assert (c.optimiser.kind, c.optimiser.rmsprop_alpha) == ("rmsprop_tf", 0.99)
    assert c.optimiser.epsilon * 5**2 == pytest.approx(0.1)
    assert c.optimiser.rmsprop_initial * 5**2 == pytest.approx(1.0)
    assert (c.tuner.enabled, c.tuner.objective, c.tuner.every_s) == (True, "tps", 20.0)
    # GA3C's queue holds 100 updates; where data stay young, it holds two
    assert c.trainer.queue_batches == 100
    learns = load_config("ga3c/breakout")
    assert learns.trainer.queue_batches == 2
    assert (learns.actors.inference, learns.tuner) == ("predictor", c.tuner)


def test_the_games_of_table_4_are_named_on_the_command_line() -> None:
    for game in _TABLE_4.split():
        config = load_config("accerl/int8", [f"env.id=ALE/{game}-v5", "actors.processes=1"])
        [group] = make_groups(config)
        assert group.env.spec.observation.leaves["observation"].shape == (4, 84, 84)
        group.env.close()


@pytest.mark.parametrize(
    "name",
    ["accerl/pruned", "accerl/distilled_int8", "accerl/mix", "ga3c/paper", "ga3c/breakout"],
)
def test_it_starts_and_learns(name: str, tmp_path: Path) -> None:
    few = [*_SMALL, *(_SMALL_COMPRESSOR if load_config(name).compressor.chain else ())]
    if load_config(name).monitor.strategies:
        few.append("run.deterministic=false")  # a strategy decides by the clock
    config = load_config(name, [*few, f"run.dir={tmp_path}", "run.name=r"])
    [group] = make_groups(config)
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
    batch = 2 * config.actors.unroll_length * config.actors.envs_per_group
    assert summary["learned_steps"] == 2 * batch
