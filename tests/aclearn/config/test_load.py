"""Valid files and overrides, and the resulting configuration."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
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
from tests.support.waiting import run_python

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str, name: str = "game.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def test_keys_that_a_file_leaves_out_keep_their_defaults(write: Write) -> None:
    config = load_config(write("env: {id: CartPole-v1}\nactors: {processes: 7}\n"))

    assert config.env.id == "CartPole-v1"
    assert config.actors.processes == 7
    assert config.actors.envs_per_group == 16
    assert config.trainer.queue_bytes == 64 * 1024 * 1024


def test_a_section_whose_keys_are_all_commented_out_keeps_its_defaults(write: Write) -> None:
    config = load_config(write("env: {id: CartPole-v1}\nloss:\n#  discount: 0.5\n"))

    assert config.loss == ActorCriticConfig()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3e-4", 0.0003),
        ("3E-4", 0.0003),
        ("1e-3", 0.001),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1", 1.0),
        ("+2.5e-1", 0.25),
    ],
)
def test_every_usual_spelling_of_a_number_is_a_number(text: str, number: float) -> None:
    config = config_from_yaml(f"env: {{id: a}}\noptimiser: {{learning_rate: {text}}}")

    assert config.optimiser.learning_rate == number


@pytest.mark.parametrize("text", ["10000000", "10_000_000", "1e7", "1.0e+7"])
def test_whole_numbers_may_have_underscores_or_an_exponent(text: str) -> None:
    config = config_from_yaml(f"env: {{id: a}}\nrun: {{max_env_steps: {text}}}")

    assert config.run.max_env_steps == 10_000_000
    assert isinstance(config.run.max_env_steps, int)


def test_off_is_a_word_and_not_false() -> None:
    assert config_from_yaml("env: {id: a}\ntrainer: {amp: off}").trainer.amp == "off"


def test_lambda_is_the_key_of_lambda_() -> None:
    config = config_from_yaml("env: {id: a}\ncorrectors: [{vtrace: {lambda: 0.5}}]")

    assert config.correctors[0].arguments.lambda_ == 0.5
    assert "    lambda: 0.5\n" in config.to_yaml()


def test_a_name_alone_is_a_corrector_with_its_defaults() -> None:
    bare = config_from_yaml("env: {id: a}\ncorrectors: [vtrace, importance_sampling:]")

    assert bare == config_from_yaml("env: {id: a}")
    assert [corrector.name for corrector in bare.correctors] == ["vtrace", "importance_sampling"]


def test_a_loss_has_its_own_keys_and_usual_correctors(write: Write) -> None:
    def loaded(text: str) -> Config:
        return load_config(write("env: {id: a}\n" + text))

    def correctors(text: str) -> list[object]:
        return [each.name for each in loaded(text).correctors]

    assert correctors("") == ["vtrace", "importance_sampling"]
    assert correctors("loss: {kind: a2c}") == ["no_correction"]
    ppo = loaded("loss: {kind: ppo, clip_range: 0.1}")
    assert (ppo.loss.kind, ppo.loss.clip_range, ppo.loss.normalise_advantages) == ("ppo", 0.1, True)
    assert ppo.correctors[0].arguments.lambda_ == 0.95
    assert config_from_yaml(ppo.to_yaml()) == ppo
    assert correctors("loss: {kind: ppo}\ncorrectors: [no_correction]") == ["no_correction"]
    assert loaded("loss: {kind: impact}").loss.target_update_every == 32
    sac = loaded("loss: {kind: sac}")
    assert not sac.correctors and sac.env.squash_actions and sac.policy.std_from_observations
    assert (sac.replay.batch, sac.replay.ratio, sac.policy.hidden) == (256, 256, (256, 256))
    text = "env: {id: a, squash_actions: true}\nloss: {kind: ddpg, memory: replay}"
    ddpg = config_from_yaml(text)
    assert (ddpg.trainer.minibatches, ddpg.trainer.epochs, ddpg.actors.unroll_length) == (1, 1, 8)
    assert ddpg.trainer.max_lag_versions == sac.trainer.max_lag_versions == 1_000_000
    assert config_from_yaml(ddpg.to_yaml()) == ddpg
    with pytest.raises(ConfigError, match="clip_range"):
        loaded("loss: {clip_range: 0.1}")


@pytest.mark.parametrize(
    ("loss", "usual"),
    [
        (
            "actor_critic",
            {"actors.unroll_length": 20, "trainer.epochs": 1, "trainer.minibatches": 1},
        ),
        (
            "a2c",
            {
                **{"actors.unroll_length": 5, "trainer.epochs": 1, "trainer.minibatches": 1},
                **{"optimiser.kind": "rmsprop_tf", "optimiser.learning_rate": 7e-4},
            },
        ),
        ("ppo", {"actors.unroll_length": 128, "trainer.epochs": 10, "trainer.minibatches": 32}),
        ("impact", {"actors.unroll_length": 64, "trainer.epochs": 2, "trainer.minibatches": 8}),
        (
            "ddpg",
            {
                **{"actors.unroll_length": 8, "trainer.epochs": 2, "trainer.minibatches": 4},
                **{"optimiser.learning_rate": 1e-3, "optimiser.max_grad_norm": 0.0},
            },
        ),
    ],
)
def test_an_algorithm_has_its_usual_settings_where_none_are_given(
    loss: str, usual: dict[str, object]
) -> None:
    text = f"env: {{id: a, squash_actions: true}}\nresident: {{envs: 8}}\nloss: {{kind: {loss}}}\n"
    of_others = {"optimiser.kind": "adam", "optimiser.learning_rate": 3e-4}

    config = config_from_yaml(text)

    for dotted, value in {**of_others, **usual}.items():
        section, key = dotted.split(".")
        assert getattr(getattr(config, section), key) == value, dotted
    assert not list(doubts(config))
    assert config_from_yaml(config.to_yaml()) == config
    given = config_from_yaml(f"{text}trainer: {{epochs: 3}}\noptimiser:\n")
    assert given.trainer.epochs == 3
    assert given.trainer.minibatches == config.trainer.minibatches
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


@pytest.mark.parametrize(
    ("corrector", "key"),
    [("vtrace", "rho_bar"), ("vtrace", "c_bar"), ("importance_sampling", "rho_bar")],
)
@pytest.mark.parametrize("text", ["null", ".inf"])
def test_a_bar_may_be_absent(corrector: str, key: str, text: str) -> None:
    config = config_from_yaml(f"env: {{id: a}}\ncorrectors: [{{{corrector}: {{{key}: {text}}}}}]")

    assert getattr(config.correctors[0].arguments, key) is None
    assert config_from_yaml(config.to_yaml()) == config


def test_overrides_win_over_the_file_and_the_last_one_wins_over_the_others(write: Write) -> None:
    path = write("env: {id: CartPole-v1}\noptimiser: {learning_rate: 1e-3}\n")

    config = load_config(
        path,
        [
            "optimiser.learning_rate=2e-3",
            "optimiser.learning_rate=4e-3",
            "policy.hidden=[32, 16]",
            "env.kwargs.render_mode=rgb_array",
            "run.target_return=-3",
        ],
    )

    assert config.optimiser.learning_rate == 0.004
    assert config.policy.hidden == (32, 16)
    assert config.env.kwargs == {"render_mode": "rgb_array"}
    assert config.run.target_return == -3.0


def test_an_experiment_is_called_after_its_file_its_folder_or_its_environment(
    write: Write, tmp_path: Path
) -> None:
    config = load_config(write("env: {id: a}"), ["run.seed=5"])
    assert (config.run.name, config.experiment) == (None, "game")
    assert config.named_by_seed().run.name == "game-seed5"
    assert load_config(write("env: {id: a}\nrun: {experiment: own}")).experiment == "own"
    project = tmp_path / "my project" / "config.yaml"
    project.parent.mkdir()
    project.write_text("env: {id: a}")
    assert load_config(project).experiment == "my-project"
    assert config_of_keys({"env.id": "ALE/Pong-v5"}).experiment == "pong-v5"


def test_a_name_that_no_folder_should_have_is_made_plain(tmp_path: Path) -> None:
    path = tmp_path / "..my pong (2).yaml"
    path.write_text("env: {id: a}", encoding="utf-8")

    assert load_config(path).experiment == "my-pong-2"
    for env_id, plain in (("m:Env", "m-env"), ("é", "run"), ("x" * 99, "x" * 80)):
        assert config_of_keys({"env.id": env_id}).experiment == plain


def test_modules_are_searched_beside_the_file_its_bases_and_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("a/c.yaml", "base: ../b/base.yaml"), ("b/base.yaml", "base: cartpole")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    folders = tuple(str(tmp_path / name) for name in ("own", "a", "a/../b", ""))
    config = load_config("a/c.yaml", {"run.pythonpath": ["own"]})
    assert tuple(map(os.path.normpath, config.run.pythonpath)) == tuple(
        map(os.path.normpath, folders)
    )
    assert load_config("cartpole").run.pythonpath == (str(tmp_path),)
    # a run keeps those of its start
    run = tmp_path / "runs" / "c-1"
    for name in ("checkpoints", "logs"):
        (run / name).mkdir(parents=True)
    (run / "config.yaml").write_text(config.to_yaml())
    monkeypatch.chdir("a")
    assert load_config(run / "config.yaml").run.pythonpath == config.run.pythonpath


def test_a_name_that_is_given_stays(write: Write) -> None:
    assert load_config(write("env: {id: a}\nrun: {name: first}")).run.name == "first"


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


def test_the_same_number_is_text_in_one_place_and_a_number_in_another(write: Write) -> None:
    text = "env: {id: a}\nrun: {seed: &n 42, name: *n}\n"
    config = load_config(write(text))
    assert (config.run.seed, config.run.name) == (42, "42")


def test_a_name_that_is_merged_in_is_text_too(write: Write) -> None:
    text = "env: {id: a}\nrun: {<<: {name: 42, seed: 7}}\n"
    assert load_config(write(text)).run.name == "42"


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


def test_null_is_no_name_and_null_in_quotes_is_one(write: Write) -> None:
    path = write("env: {id: a}\nrun: {name: 'null'}\n")
    assert load_config(path).run.name == "null"
    assert load_config(path, ["run.name=null"]).run.name is None
    assert config_from_yaml(load_config(path).to_yaml()).run.name == "null"


def test_a_configuration_cannot_be_changed_after_it_is_loaded() -> None:
    config = config_from_yaml("env: {id: a}")

    with pytest.raises(ValidationError, match="frozen"):
        config.run.seed = 2  # type: ignore[misc]


def test_what_the_maker_of_an_environment_is_told_stays_out_of_repr() -> None:
    config = config_from_yaml("env: {id: a, kwargs: {password: hunter2}}")

    assert "hunter2" not in repr(config)
    assert "hunter2" not in str(config.env)


@given(
    name=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z"),
    directory=st.text(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), min_size=1
    ),
    rate=st.floats(1e-12, 10.0),
    target=st.none() | st.floats(allow_nan=False, allow_infinity=False),
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
    name: str,
    directory: str,
    rate: float,
    target: float | None,
    hidden: list[int] | None,
    kwargs: dict[str, object],
) -> None:
    config = Config.model_validate(
        {
            "run": {"name": name, "dir": directory, "target_return": target},
            "env": EnvConfig(id="CartPole-v1", kwargs=kwargs),
            "policy": {"architecture": "mlp", "hidden": hidden},
            "optimiser": {"learning_rate": rate},
        }
    )

    assert config_from_yaml(config.to_yaml()) == config


def test_an_actor_that_reads_its_configuration_does_not_import_torch() -> None:
    code = "import sys, aclearn.config; sys.exit('torch' in sys.modules)"

    assert run_python("-c", code).returncode == 0


def test_another_loss_over_a_configuration_brings_its_usual_settings() -> None:
    keys = {"env.id": "CartPole-v1", "trainer.queue_batches": 9}
    over = with_overrides(
        Config(env={"id": "CartPole-v1"}, trainer={"queue_batches": 9}), {"loss.kind": "ppo"}
    )
    expected = config_of_keys(keys | {"loss.kind": "ppo"})
    for section in ("trainer", "actors", "loss", "optimiser", "correctors"):
        assert getattr(over, section) == getattr(expected, section)
    assert over.trainer.epochs > 1


def test_the_usual_values_of_a_loss_leave_with_it() -> None:
    keys, own = {"env.id": "CartPole-v1", "loss.kind": "dqn"}, {"trainer.queue_batches": 9}
    given = Config(env={"id": "CartPole-v1"}, loss={"kind": "dqn"}, trainer={"queue_batches": 9})
    for config in (given, config_of_keys(keys | own)):
        assert with_overrides(config, {"run.seed": 2}).replay == given.replay
        over = with_overrides(config, {"loss.kind": "ppo"})
        assert over == config_of_keys(keys | own | {"loss.kind": "ppo"})


def test_folders_become_absolute(write: Write) -> None:
    config = load_config(write("env: {id: a}\nnetwork: {keys_dir: keys}\n"), ["run.dir=x/y"])
    here = Path.cwd()
    assert (config.run.dir, config.network.keys_dir) == (f"{here}/x/y", f"{here}/keys")


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


class _Colour(enum.StrEnum):
    RED = "red"


_LOOP: list[Any] = []
_LOOP.append(_LOOP)


def test_values_of_python_are_written_as_plain_data_and_tuples_stay_tuples(tmp_path) -> None:
    kwargs = {
        "size": (np.int64(5), (2.5, [1, (2,)])),
        "file": tmp_path / "maze.txt",
        "scale": np.float32(0.5),
        "deep": {"on": np.bool_(True), "array": np.array(3)},
        "numbers": {3: None},
    }
    kwargs["names"] = [np.str_("a"), _Colour.RED]
    config = Config(
        run={"seed": np.int64(7), "dir": tmp_path},
        env={"id": "CartPole-v1", "kwargs": kwargs},
        policy={"hidden": [np.int32(64), 32]},
    )
    expected = {
        "size": (5, (2.5, [1, (2,)])),
        "file": str(tmp_path / "maze.txt"),
        "scale": 0.5,
        "deep": {"on": True, "array": 3},
        "numbers": {3: None},
        "names": ["a", "red"],
    }
    assert config.env.kwargs == expected
    assert (config.run.seed, config.run.dir, config.policy.hidden) == (7, str(tmp_path), (64, 32))
    again = config_from_yaml(config.to_yaml())
    assert again == config and again.env.kwargs == expected
    assert "hidden: [" not in config.to_yaml() and config.to_yaml().count("!!python/tuple") == 3


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        (
            {"reward": lambda: 1.0},
            r"env\.kwargs\.reward: got <function .*, which config\.yaml",
        ),
        ({"a": [{"b": object()}]}, r"env\.kwargs\.a\[0\]\.b: got <object"),
        ({"array": np.zeros(2)}, r"env\.kwargs\.array: got array"),
        ({"set": {1, 2}}, r"env\.kwargs\.set: got \{1, 2\} \(set\)"),
        ({"when": np.datetime64("2026-01-01")}, r"env\.kwargs\.when: got datetime\.date"),
        ({"map": {(1, 2): 3}}, r"env\.kwargs\.map: got the key a list"),
        ({"loop": _LOOP}, r"nested more than 50 deep"),
    ],
    ids=("function", "object", "array", "set", "date", "key", "loop"),
)
def test_values_that_no_file_can_hold_are_refused_by_their_key(kwargs, said) -> None:
    with pytest.raises(ConfigError, match=said):
        Config(env={"id": "CartPole-v1", "kwargs": kwargs})


def test_a_tuple_may_be_written_in_a_file() -> None:
    text = "env: {id: CartPole-v1, kwargs: {size: !!python/tuple [5, [6]]}}"
    assert config_from_yaml(text).env.kwargs == {"size": (5, [6])}
