"""What is read of an environment before the run, and what an evaluator's must have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gymnasium import spaces

from aclearn.config import Config, EnvConfig, ResidentConfig, load_config
from aclearn.envs import read_spec
from aclearn.errors import ConfigError, EnvironmentFailure
from services.start.probe import check_evaluator_spaces, probe_environment
from tests.support.calls_here import Here
from tests.support.env_specs import plain_spec


@pytest.mark.parametrize(
    ("masked", "words"),
    [
        (True, "it has masks of actions, and the run's environment has none; set env.action_mask"),
        (False, "it has no masks of actions, and the run's environment has some"),
    ],
)
def test_an_evaluator_without_the_runs_masks_is_refused_by_their_name(masked, words) -> None:
    spec = read_spec(EnvConfig(id="CartPole-v1"))
    found, run = (replace(spec, masked=each) for each in (masked, not masked))
    with pytest.raises(ConfigError, match=words):
        check_evaluator_spaces(found, run)
    check_evaluator_spaces(run, run)


def slippery() -> Any:
    """A resident environment that Warp cannot compile: its observations are longer than said."""
    from aclearn.resident import find_env

    env: Any = find_env("CartPole")
    return replace(env, name="Slippery", observation_space=spaces.Box(-1.0, 1.0, (3,)))


def test_a_resident_environment_is_compiled_by_its_trainer_alone() -> None:
    pytest.importorskip("aclearn.resident")
    steps_them: dict[str, Any] = {"resident": {"envs": 4}}

    def probed(name: str = f"{__name__}:slippery", **groups: Any) -> Any:
        env = {"id": f"resident:{name}", "kwargs": groups.pop("kwargs", {})}
        return probe_environment(Config(env=env, **groups), call=Here())

    assert probed(**steps_them) == plain_spec((3,), "float32", 2, 1)
    with pytest.raises(EnvironmentFailure, match="Slippery: Warp cannot compile it"):
        probed()  # of actors, which step it themselves
    with pytest.raises(EnvironmentFailure, match=r"CartPole: .*'snow'; its keys are gravity"):
        probed("CartPole", kwargs={"snow": 1.0}, **steps_them)
    with pytest.raises(EnvironmentFailure, match=r"policies: .*slippery has one agent"):
        probed(policies={"a": {"agents": "*"}}, **steps_them)


def test_a_resident_world_is_read_for_each_policy() -> None:
    pytest.importorskip("aclearn.resident")
    config = load_config("resident/tag_gridworld")
    compiled = probe_environment(
        config.model_copy(update={"resident": ResidentConfig()}), call=Here()
    )
    assert probe_environment(config, call=Here()) == compiled
