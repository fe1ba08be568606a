"""Runs that begin without a configuration file: `--env`, `aclearn new`, `aclearn check-env`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from aclearn.config import config_of_keys, load_config, parse_yaml
from aclearn.errors import AclearnError, ConfigError, EnvironmentFailure
from aclearn.runs import metrics_columns, read_metrics
from aclearn.types import ActionSpec, EnvSpec, LeafSpec, ObservationSpec
from aclearn.types.action_spec import ActionPart
from services.commands.new import config_text
from services.commands.starting_point import choose, start_from
from services.policy.factory import architecture_of
from services.start.probe import probe_environment
from tests.support.calls_here import Here
from tests.support.cli import aclearn

_BOX = ActionSpec.of((ActionPart((), (1,), "float32", low=(-2.0,), high=(2.0,)),))
_FLAT, _IMAGE = LeafSpec((3,), "float32"), LeafSpec((3, 64, 64), "uint8")
_SMALL = LeafSpec((3, 8, 8), "uint8")


@pytest.mark.parametrize(
    ("env_id", "leaves", "action", "expected"),
    [
        ("a:b", {"observation": _FLAT}, ActionSpec.discrete(2), ("mlp", "ppo", False)),
        ("a:b", {"observation": _FLAT}, _BOX, ("mlp", "ppo", False)),
        ("a:b", {"observation": _IMAGE}, ActionSpec.discrete(2), ("nature", "ppo", False)),
        ("a:b", {"see": _IMAGE, "feel": _FLAT}, _BOX, ("nature", "ppo", False)),
        ("a:b", {"observation": _SMALL}, ActionSpec.discrete(2), ("small-cnn", "ppo", False)),
        (
            "ALE/Pong-v5",
            {"observation": LeafSpec((4, 84, 84), "uint8", 4)},
            ActionSpec.discrete(6),
            ("accerl-net1", "ppo", True),
        ),
    ],
)
def test_the_spaces_choose_network_and_loss_and_the_file_says_the_same(
    tmp_path: Path, env_id: str, leaves: Any, action: ActionSpec, expected: tuple[str, str, bool]
) -> None:
    spec = EnvSpec(ObservationSpec(leaves), action)
    chosen = choose(env_id, spec, 7.0)
    config = config_of_keys({each.key: each.value for each in chosen}, ["run.experiment=x"])
    found = (config.policy.architecture, config.loss.kind, config.env.clip_rewards)
    assert found == expected and config.run.target_return == 7.0
    architecture_of(config, spec)  # it fits
    path = tmp_path / "x.yaml"
    path.write_text(config_text(env_id, chosen))
    loaded = load_config(path)
    assert loaded.run.pythonpath == (str(tmp_path), *config.run.pythonpath)
    assert loaded.with_run(pythonpath=config.run.pythonpath) == config


def test_a_run_of_a_named_environment_says_its_keys_and_overrides_win(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config, spec, chosen = start_from("CartPole-v1", {"actors.processes": 1})
    assert (config.experiment, config.run.target_return) == ("cartpole-v1", 475.0)
    assert config.actors.processes == 1 and spec.action.counts == (2,)
    assert "actors.processes" not in {each.key for each in chosen}
    said = aclearn(
        *("train", "--env", "CartPole-v1", "run.deterministic=true", "run.max_updates=2"),
        *("run.name=r", "actors.processes=1"),
    )
    assert "CartPole-v1: observations float32 (4,); 2 actions. Chosen keys" in said
    assert "policy.architecture=mlp" in said and "next: aclearn evaluate runs/r" in said
    assert "aclearn train runs/r/config.yaml --resume" not in said  # it has reached its bound
    resumed = aclearn("train", "--env", "CartPole-v1", "run.name=r", "--resume")
    assert "is over: it has reached run.max_updates=2" in resumed


def test_with_resident_environments_no_key_of_actors_is_chosen() -> None:
    for env_id in ("CartPole-v1", "Pendulum-v1"):
        config, _, chosen = start_from(env_id, ["resident.envs=8"])
        assert config.resident.envs == 8
        keys = {each.key for each in chosen}
        assert [key for key in keys if key.startswith("actors.")] == ["actors.unroll_length"]
        assert not keys & {"trainer.device", "trainer.unrolls_per_batch"}


@pytest.mark.usefixtures("forget")
def test_a_new_project_trains_as_it_is_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "own")
    told = aclearn("new", "own")
    files = ("config.yaml", "my_env.py", "config.schema.json")
    assert told.splitlines()[0] == f"wrote {', '.join(f'own/{name}' for name in files)}"
    written = Path("own/config.yaml").read_text()
    assert written.startswith("# yaml-language-server: $schema=config.schema.json\n# my_env:make")
    schema = json.loads(Path("own/config.schema.json").read_text())
    Draft7Validator(schema).validate(parse_yaml(written).value)
    with pytest.raises(ConfigError, match="exists already"):
        aclearn("new", "own")
    monkeypatch.chdir("own")
    checked = aclearn("check-env", "my_env:make")
    assert "one seed gives one episode" in checked and "MEND" not in checked
    given = ["run.deterministic=true", "actors.processes=1", "run.name=r"]
    aclearn("train", "config.yaml", *given, "run.max_updates=960")
    returns = metrics_columns(read_metrics(Path("runs/r/metrics.jsonl")))["return_mean_100"]
    # random walks end at about -2; three batches of the deterministic run reach -0.6
    assert returns[-1] > -1.3


def test_a_named_environment_is_wrapped_to_be_edited_and_an_atari_game_is_not(
    tmp_path: Path,
) -> None:
    aclearn("new", tmp_path / "pole", "--env", "CartPole-v1")
    assert 'gymnasium.make("CartPole-v1", **kwargs)' in (tmp_path / "pole/my_env.py").read_text()
    assert load_config(tmp_path / "pole/config.yaml").env.id == "my_env:make"
    aclearn("new", tmp_path / "pong", "--env", "ALE/Pong-v5")
    names = {path.name for path in (tmp_path / "pong").iterdir()}
    assert names == {"config.yaml", "config.schema.json"}
    assert load_config(tmp_path / "pong/config.yaml").env.id == "ALE/Pong-v5"


@pytest.fixture
def probed_here(monkeypatch) -> None:
    probe = partial(probe_environment, call=Here())
    monkeypatch.setattr("services.commands.starting_point.probe_environment", probe)


@pytest.mark.usefixtures("probed_here")
@pytest.mark.parametrize("old", ["PongNoFrameskip-v4", "ale_py:Pong-v0"])
def test_an_older_id_of_an_atari_game_is_written_as_its_present_one(
    old: str, tmp_path: Path
) -> None:
    told = aclearn("new", tmp_path, "--env", old)
    assert "aclearn check-env ALE/Pong-v5" in told
    assert {path.name for path in tmp_path.iterdir()} == {"config.yaml", "config.schema.json"}
    assert parse_yaml((tmp_path / "config.yaml").read_text()).value["env"]["id"] == "ALE/Pong-v5"


@pytest.mark.usefixtures("probed_here")
@pytest.mark.parametrize(
    "overrides",
    [
        [
            "policies.one.agents=long",
            "policies.other.agents=[short]",
            "policies.one.loss.clip_range=0.1",
        ],
        ["policies.one={agents: long, loss: {clip_range: 0.1}}", "policies.other.agents=short"],
        ["policies={one: {agents: [long]}, other: {agents: short, learns: false}}"],
    ],
    ids=("keys", "a policy", "the section"),
)
def test_the_agents_of_policies_are_known_when_the_environment_is_made(
    overrides: list[str],
) -> None:
    config, spec, _ = start_from("tests.support.agents_env:Uneven", overrides)
    assert config.patterns == {"one": ("long",), "other": ("short",)}
    assert [kind.action.counts for kind in spec.kinds] == [(3,), (4,)]


@pytest.mark.parametrize(
    "words",
    [
        ["resident:CartPole"],
        ["tests.support.agents_env:Pairs"],
        ["tests.support.space_envs:Gates", "env.action_mask=info"],
    ],
)
def test_groups_that_check_themselves_are_stepped(words: list[str], monkeypatch) -> None:
    monkeypatch.setattr("services.role.isolated.call", Here())
    monkeypatch.setattr("services.start.probe._CHECK_S", 0.3)
    checked = aclearn("check-env", *words)
    assert "steps with random actions" in checked and "MEND" not in checked


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (["train"], ConfigError, "expected a configuration, e.g. cartpole, or --env ID"),
        (["train", "pong", "--env", "CartPole-v1"], ConfigError, "'pong' cannot be another one"),
        (["train", "--env", "CartPole-v1", "run.sed=2"], ConfigError, "did you mean run.seed"),
        (["check-env", "CartPol-v1"], EnvironmentFailure, "did you mean CartPole-v"),
    ],
)
def test_a_mistake_is_told(words: list[str], kind: type[AclearnError], said: str) -> None:
    with pytest.raises(kind, match=said):
        aclearn(*words)
