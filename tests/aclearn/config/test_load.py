"""Valid files and overrides, and the resulting configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from aclearn.algorithms.actor_critic import ActorCriticConfig
from aclearn.config import (
    Config,
    EnvConfig,
    TrainerConfig,
    config_from_yaml,
    config_of_keys,
    doubts,
    load_config,
    with_overrides,
)
from aclearn.errors import ConfigError

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str, name: str = "game.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def test_keys_that_a_file_leaves_out_keep_their_defaults(write: Write) -> None:
    # a section whose keys are all commented out too
    config = load_config(write("env: {id: CartPole-v1}\nactors: {processes: 7}\nloss:\n#  x: 1\n"))
    assert (config.env.id, config.actors.processes) == ("CartPole-v1", 7)
    assert config.actors.envs_per_group == 16
    assert config.trainer.queue_bytes == 64 * 1024 * 1024
    assert config.loss == ActorCriticConfig()


@pytest.mark.parametrize(
    ("key", "texts", "value"),
    [
        ("optimiser.learning_rate", "3e-4 3E-4 .0003 0.0003 +3e-4", 0.0003),
        ("optimiser.learning_rate", "1 1.", 1.0),
        ("run.max_env_steps", "10000000 10_000_000 1e7 1.0e+7", 10_000_000),
        ("trainer.amp", "off", "off"),
    ],
)
def test_every_usual_spelling_of_a_number_is_one_and_off_is_a_word(
    key: str, texts: str, value: object
) -> None:
    section, name = key.split(".")
    for text in texts.split():
        config = config_from_yaml(f"env: {{id: a}}\n{section}: {{{name}: {text}}}")
        found = getattr(getattr(config, section), name)
        assert found == value and type(found) is type(value)


def test_a_corrector_is_a_name_alone_or_with_arguments_of_which_a_bar_may_be_absent() -> None:
    bare = config_from_yaml("env: {id: a}\ncorrectors: [vtrace, importance_sampling:]")
    assert bare == config_from_yaml("env: {id: a}")
    assert [corrector.name for corrector in bare.correctors] == ["vtrace", "importance_sampling"]
    for absent in ("null", ".inf"):
        arguments = f"{{lambda: 0.5, rho_bar: {absent}, c_bar: {absent}}}"
        config = config_from_yaml(f"env: {{id: a}}\ncorrectors: [{{vtrace: {arguments}}}]")
        vtrace = config.correctors[0].arguments
        assert (vtrace.lambda_, vtrace.rho_bar, vtrace.c_bar) == (0.5, None, None)
        assert "    lambda: 0.5\n" in config.to_yaml()
        assert config_from_yaml(config.to_yaml()) == config


def test_a_loss_has_its_own_keys_and_usual_correctors() -> None:
    def loaded(text: str) -> Config:
        config = config_from_yaml(text if "env:" in text else "env: {id: a}\n" + text)
        assert config_from_yaml(config.to_yaml()) == config
        return config

    def correctors(text: str) -> list[object]:
        return [each.name for each in loaded(text).correctors]

    assert correctors("") == ["vtrace", "importance_sampling"]
    assert correctors("loss: {kind: a2c}") == ["no_correction"]
    assert correctors("loss: {kind: ppo}\ncorrectors: [no_correction]") == ["no_correction"]
    ppo = loaded("loss: {kind: ppo, clip_range: 0.1}")
    assert (ppo.loss.kind, ppo.loss.clip_range, ppo.loss.normalise_advantages) == ("ppo", 0.1, True)
    assert ppo.correctors[0].arguments.lambda_ == 0.95
    assert loaded("loss: {kind: impact}").loss.target_update_every == 32
    sac = loaded("loss: {kind: sac}")
    assert not sac.correctors and sac.env.squash_actions and sac.policy.std_from_observations
    assert (sac.replay.batch, sac.replay.ratio, sac.policy.hidden) == (256, 256, (256, 256))
    text = "env: {id: a, squash_actions: true}\nloss: {kind: ddpg, memory: replay}"
    ddpg = loaded(text)
    assert (ddpg.trainer.minibatches, ddpg.trainer.epochs, ddpg.actors.unroll_length) == (1, 1, 8)
    assert ddpg.trainer.max_lag_versions == sac.trainer.max_lag_versions == 1_000_000
    with pytest.raises(ConfigError, match="clip_range"):
        loaded("loss: {clip_range: 0.1}")


@pytest.mark.parametrize(
    ("loss", "unroll_length", "epochs", "minibatches", "optimiser"),
    [
        ("actor_critic", 20, 1, 1, {}),
        ("a2c", 5, 1, 1, {"kind": "rmsprop_tf", "learning_rate": 7e-4}),
        ("ppo", 128, 10, 32, {}),
        ("impact", 64, 2, 8, {}),
        ("ddpg", 8, 2, 4, {"learning_rate": 1e-3, "max_grad_norm": 0.0}),
    ],
)
def test_an_algorithm_has_its_usual_settings_where_none_are_given(
    loss: str, unroll_length: int, epochs: int, minibatches: int, optimiser: dict[str, object]
) -> None:
    text = f"env: {{id: a, squash_actions: true}}\nresident: {{envs: 8}}\nloss: {{kind: {loss}}}\n"
    config = config_from_yaml(text)
    assert config.actors.unroll_length == unroll_length
    assert (config.trainer.epochs, config.trainer.minibatches) == (epochs, minibatches)
    usual = {"kind": "adam", "learning_rate": 3e-4} | optimiser
    assert {key: getattr(config.optimiser, key) for key in usual} == usual
    assert not list(doubts(config))
    assert config_from_yaml(config.to_yaml()) == config
    given = config_from_yaml(f"{text}trainer: {{epochs: 3}}\noptimiser:\n")
    assert (given.trainer.epochs, given.trainer.minibatches) == (3, minibatches)
    of_sections = Config(
        env=config.env, resident=config.resident, loss=config.loss, trainer=TrainerConfig(epochs=3)
    )
    assert of_sections == given


def test_a_loss_and_a_corrector_of_ones_own_keep_their_arguments(write: Write) -> None:
    text = "env: {id: a}\nloss: {kind: 'm:Loss', clip: 0.1}\ncorrectors: [{'m:C': {x: [1]}}, 'm:D']"
    config = load_config(write(text), ["loss.clip=0.2", "loss.discount=0.5"])

    assert (config.loss.kind, config.loss.discount) == ("m:Loss", 0.5)
    assert config.loss.model_extra == {"clip": 0.2}
    assert [c.arguments.model_extra for c in config.correctors] == [{"x": [1]}, {}]
    assert config_from_yaml(config.to_yaml()) == config


def test_overrides_win_over_the_file_and_the_last_one_wins_over_the_others(write: Write) -> None:
    path = write("env: {id: CartPole-v1}\noptimiser: {learning_rate: 1e-3}\n")
    rates = ["optimiser.learning_rate=2e-3", "optimiser.learning_rate=4e-3"]
    others = ["policy.hidden=[32, 16]", "env.kwargs.render_mode=rgb_array", "run.target_return=-3"]
    config = load_config(path, [*rates, *others])
    assert config.optimiser.learning_rate == 0.004
    assert (config.policy.hidden, config.run.target_return) == ((32, 16), -3.0)
    assert config.env.kwargs == {"render_mode": "rgb_array"}


def test_an_experiment_is_called_after_its_file_its_folder_or_its_environment(
    write: Write, tmp_path: Path
) -> None:
    config = load_config(write("env: {id: a}"), ["run.seed=5"])
    assert (config.run.name, config.experiment) == (None, "game")
    assert config.named_by_seed().run.name == "game-seed5"
    assert load_config(write("env: {id: a}\nrun: {experiment: own}")).experiment == "own"
    assert load_config(write("env: {id: a}\nrun: {name: first}")).run.name == "first"
    (tmp_path / "my project").mkdir()
    assert load_config(write("env: {id: a}", "my project/config.yaml")).experiment == "my-project"
    # a name that no folder should have is made plain
    assert load_config(write("env: {id: a}", "..my pong (2).yaml")).experiment == "my-pong-2"
    plain = {"ALE/Pong-v5": "pong-v5", "m:Env": "m-env", "é": "run", "x" * 99: "x" * 80}
    for env_id, name in plain.items():
        assert config_of_keys({"env.id": env_id}).experiment == name


def test_modules_are_searched_beside_the_file_its_bases_and_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("a/c.yaml", "base: ../b/base.yaml"), ("b/base.yaml", "base: cartpole")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    config = load_config("a/c.yaml", {"run.pythonpath": ["own"]})
    folders = [Path(os.path.normpath(folder)) for folder in config.run.pythonpath]
    assert folders == [tmp_path / name for name in ("own", "a", "b", "")]
    assert load_config("cartpole").run.pythonpath == (str(tmp_path),)
    # a run keeps those of its start
    run = tmp_path / "runs" / "c-1"
    for name in ("checkpoints", "logs"):
        (run / name).mkdir(parents=True)
    (run / "config.yaml").write_text(config.to_yaml())
    monkeypatch.chdir("a")
    assert load_config(run / "config.yaml").run.pythonpath == config.run.pythonpath


@pytest.mark.parametrize(
    "written", ["42", "007", "1e5", "1_000", "3.10", "true", "NULL5", ".5e3", "2026-01-01", "off"]
)
def test_a_key_that_holds_text_keeps_the_text_as_it_is_written(write: Write, written: str) -> None:
    key, name = ("dir", written) if written.startswith(".") else ("name", written)
    config = load_config(write(f"env: {{id: a}}\nrun: {{{key}: {written}}}\n"))
    assert Path(getattr(config.run, key)).name == name
    assert config_from_yaml(config.to_yaml()) == config

    config = load_config(write("env: {id: a}\n"), [f"run.{key}={written}"])
    assert Path(getattr(config.run, key)).name == name


def test_text_by_an_alias_or_a_merge_is_text_too_and_null_is_none(write: Write) -> None:
    config = load_config(write("env: {id: a}\nrun: {seed: &n 42, name: *n}\n"))
    assert (config.run.seed, config.run.name) == (42, "42")
    assert load_config(write("env: {id: a}\nrun: {<<: {name: 42, seed: 7}}\n")).run.name == "42"
    path = write("env: {id: a}\nrun: {name: 'null'}\n")
    assert load_config(path).run.name == "null"
    assert load_config(path, ["run.name=null"]).run.name is None
    assert config_from_yaml(load_config(path).to_yaml()).run.name == "null"


@pytest.mark.parametrize("overridden", [False, True])
def test_an_atari_id_of_older_days_becomes_that_of_today_which_is_said_once(
    write: Write, overridden: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(f"env: {{id: {'CartPole-v1' if overridden else 'PongNoFrameskip-v4'}}}")
    config = load_config(path, ["env.id=PongNoFrameskip-v4"] if overridden else [])
    assert config.env.id == "ALE/Pong-v5" and config.env.is_atari
    assert caplog.messages == [
        "env.id: PongNoFrameskip-v4 is taken as ALE/Pong-v5, prepared by env.atari"
    ]
    assert config_from_yaml(config.to_yaml()) == config
    assert len(caplog.messages) == 1


def test_a_configuration_cannot_be_changed_and_hides_what_an_environment_is_told() -> None:
    config = config_from_yaml("env: {id: a, kwargs: {password: hunter2}}")
    assert "hunter2" not in repr(config) + str(config.env)
    with pytest.raises(ValidationError, match="frozen"):
        config.run.seed = 2  # type: ignore[misc]


@settings(deadline=None, max_examples=30)
@given(
    name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z"),
    folder=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), min_size=1),
    hidden=st.none() | st.lists(st.integers(1, 65_536), max_size=4),
    kwargs=st.dictionaries(
        st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.sampled_from(["off", "1e5", "3", "null", "~", "<<", "=", "2024-01-01", "1:30", ""]),
    ),
)
def test_to_yaml_reads_back_to_an_equal_configuration(
    name: str, folder: str, hidden: list[int] | None, kwargs: dict[str, object]
) -> None:
    config = Config(
        run={"name": name, "dir": folder},
        env=EnvConfig(id="CartPole-v1", kwargs=kwargs),
        policy={"architecture": "mlp", "hidden": hidden},
    )
    assert config_from_yaml(config.to_yaml()) == config


@pytest.mark.parametrize("before", ["actor_critic", "dqn"])
def test_the_usual_values_of_a_loss_come_and_leave_with_it(before: str) -> None:
    given = Config(env={"id": "CartPole-v1"}, loss={"kind": before}, trainer={"queue_batches": 9})
    keys = {"env.id": "CartPole-v1", "loss.kind": before, "trainer.queue_batches": 9}
    ppo = config_of_keys(keys | {"loss.kind": "ppo"})
    assert ppo.trainer.epochs > 1
    for config in (given, config_of_keys(keys)):
        assert with_overrides(config, {"run.seed": 2}).replay == given.replay
        assert with_overrides(config, {"loss.kind": "ppo"}) == ppo


def test_folders_become_absolute(write: Write) -> None:
    text = "env: {id: a}\nnetwork: {keys_dir: keys}\nrun: {init_from: r}\n"
    config, here = load_config(write(text), {"run.dir": Path("x/y")}), Path.cwd()
    assert (config.run.dir, config.network.keys_dir) == (f"{here}/x/y", f"{here}/keys")
    assert config.run.init_from == f"{here}/r"


def test_the_configuration_of_a_run_names_the_folder_that_it_lies_in(tmp_path: Path) -> None:
    path = tmp_path / "moved" / "42" / "config.yaml"
    for name in ("checkpoints", "logs"):
        (path.parent / name).mkdir(parents=True)
    path.write_text("env: {id: a}\nrun: {dir: /before, name: r, seed: 3}\n")
    run = load_config(path).run
    assert (run.dir, run.name, run.seed) == (f"{tmp_path}/moved", "42", 3)
    run = load_config(path, ["run.name=other", "run.dir=/b"]).run
    assert (run.dir, run.name) == ("/b", "other")
    (path.parent / "logs").rmdir()  # some configuration that has the same name
    assert load_config(path).run.dir == "/before"
