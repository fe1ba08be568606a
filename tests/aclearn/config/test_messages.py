"""Each user error gives a line with the key, the place, and how to mend it."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from aclearn.algorithms import ALGORITHMS
from aclearn.config import Config, TrainerConfig, config_from_yaml, load_config
from aclearn.config.correctors import CORRECTORS
from aclearn.config.env import AtariConfig
from aclearn.control.strategies.threshold import ThresholdConfig
from aclearn.errors import ConfigError

ENV_ID_MEANING = (
    "environment: an Atari game (ALE/Pong-v5), a gymnasium id (CartPole-v1), an id that a module "
    "registers (module:Name-v0), or a callable that returns a gymnasium.Env or a "
    "pettingzoo.ParallelEnv (module:factory)"
)


def message_of(text: str, *overrides: str, path: Path) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "game.yaml"


_UNKNOWN = " is not a known key"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "optimiser: {learning_rat: 1.0}",
            f"optimiser.learning_rat{_UNKNOWN}; did you mean optimiser.learning_rate? The keys of "
            "optimiser are kind, learning_rate, schedule, schedule_steps, adam_beta1, adam_beta2, "
            "epsilon, rmsprop_alpha, rmsprop_initial, max_grad_norm",
        ),
        (
            "trainr: {workers: 1}",
            f"trainr{_UNKNOWN}; did you mean trainer? The keys at the top are "
            + ", ".join(Config.model_fields),
        ),
        (
            "network: {zzz: 1}",  # near to nothing
            f"network.zzz{_UNKNOWN}. The keys of network are bind_host, announce_host, keys_dir, "
            "ports",
        ),
        (
            "env: {id: a, atari: {screensize: 42}}",
            f"env.atari.screensize{_UNKNOWN}; did you mean env.atari.screen_size? The keys of "
            "env.atari are " + ", ".join(AtariConfig.model_fields),
        ),
        (
            "correctors: [{vtrace: {lambda_: 1.0}}]",
            f"correctors[0]: vtrace.lambda_{_UNKNOWN}; did you mean vtrace.lambda? The keys of "
            "vtrace are rho_bar, c_bar, lambda, alpha",
        ),
        (
            "monitor: {strategies: [{threshold: {epsilon:-1}}]}",
            f"monitor.strategies[0]: threshold.epsilon:-1{_UNKNOWN}; write a space after the "
            "colon: `epsilon: -1`. The keys of threshold are "
            + ", ".join(ThresholdConfig.model_fields),
        ),
        (
            "trainer: {unrols: 3}",  # a misspelt beginning
            f"trainer.unrols{_UNKNOWN}; did you mean trainer.unrolls_per_batch? The keys of "
            "trainer are " + ", ".join(TrainerConfig.model_fields),
        ),
    ],
)
def test_an_unknown_key_gets_its_neighbours_and_the_nearest_one(
    text: str, told: str, path: Path
) -> None:
    env = "" if text.startswith("env") else "env: {id: a}"
    line = 1 if text.startswith("env") else 2
    message = message_of(f"{env}\n{text}".lstrip(), path=path)

    assert message == f"{path}: line {line}: {told}"


def test_a_key_without_its_section_is_found_in_its_section(path: Path) -> None:
    message = message_of("env: {id: a}", "learning_rate=1e-3", path=path)

    assert message.startswith(
        'override "learning_rate=1e-3": learning_rate is not a known key; did you mean '
        "optimiser.learning_rate? The keys at the top are run, "
    )


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (
            "actors.processes",
            "two",
            "expected whole number ≥ 1 and ≤ 500, got 'two' (text); meaning: actor processes that "
            "`aclearn train` starts (NA)",
        ),
        ("actors.processes", "'3'", "expected whole number ≥ 1 and ≤ 500, got '3' (text);"),
        ("actors.processes", "1.5", "expected whole number ≥ 1 and ≤ 500, got 1.5 (number);"),
        ("actors.processes", "true", "expected whole number ≥ 1 and ≤ 500, got true;"),
        ("actors.processes", "0", "expected whole number ≥ 1 and ≤ 500, got 0 (whole number);"),
        ("actors.processes", "", "expected whole number ≥ 1 and ≤ 500, got null;"),
        ("actors.processes", "[1]", "expected whole number ≥ 1 and ≤ 500, got a list;"),
        ("actors.processes", "{a: 1}", "expected whole number ≥ 1 and ≤ 500, got a mapping;"),
        ("loss.discount", "1.01", "expected number ≥ 0 and ≤ 1, got 1.01 (number);"),
        ("loss.discount", "true", "expected number ≥ 0 and ≤ 1, got true;"),
        (
            "loss.kind",
            "actor-critic",
            f"'actor-critic' is unknown; expected one of {', '.join(ALGORITHMS)}, or module:Name "
            "of yours; did you mean actor_critic?",
        ),
        ("correctors", "vtrace", "expected list of vtrace, importance_sampling, "),
        ("loss.entropy_cost", "1e39", "expected number ≥ 0 and ≤ 1e+06, got 1e+39 (number);"),
        ("optimiser.max_grad_norm", ".inf", "expected number ≥ 0, got inf (number);"),
        ("optimiser.adam_beta1", "1.0", "expected number ≥ 0 and < 1, got 1.0 (number);"),
        ("env.clip_rewards", "yes", "expected true or false, got 'yes' (text);"),
        ("env.clip_rewards", "1", "expected true or false, got 1 (whole number);"),
        (
            "env.id",
            "Pong-ram-v4",
            "Pong-ram-v4 shows the console's memory, which is not supported; ALE/Pong-v5 shows its "
            "screen",
        ),
        ("env.id", "[a]", "expected text, got a list;"),
        ("env.id", "null", "expected text, got null;"),
        ("env.kwargs", "[1]", "expected mapping whose keys are text, got a list;"),
        ("trainer.amp", "bf32", "expected one of auto, off, bf16, got 'bf32' (text);"),
        (
            "trainer.device",
            "gpu",
            r"expected text that matches ^(auto|cpu|cuda(:\d{1,3})?)$, got 'gpu' (text);",
        ),
        ("policy.hidden", "64", "expected list of whole numbers ≥ 1 and ≤ 65536 or null, got 64 "),
        (
            "policy.architecture",
            "impala-lstm",
            "'impala-lstm' is recurrent, and recurrent policies are not supported: no layer "
            "keeps a state; expected one of nature, ",
        ),
        ("policy.architecture", "resnet", "'resnet' is unknown; expected one of auto, nature, a"),
        ("monitor.port", "70000", "expected whole number ≥ 1 and ≤ 65535 or null, got 70000 "),
        ("run.metrics_every_s", "6", "expected number > 0 and ≤ 5, got 6 (whole number);"),
        (
            "run.name",
            "../up",
            "expected text that matches ^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$ or null, got '../up' ",
        ),
    ],
)
def test_a_value_that_cannot_be_used_gets_what_was_expected_and_what_was_found(
    key: str, value: str, sentence: str, path: Path
) -> None:
    message = message_of("env: {id: CartPole-v1}", f"{key}={value}", path=path)

    assert message.startswith(f'override "{key}={value}": {key}: {sentence}')


@pytest.mark.parametrize(
    ("correctors", "sentence"),
    [
        (
            "[importance_sampling, vtrac]",
            f"correctors[1]: 'vtrac' is unknown; expected one of {', '.join(CORRECTORS)}, or "
            "module:Name of yours; did you mean vtrace or retrace or tree_backup?",
        ),
        (
            "[{vtrace: {lambda: full, rho_bar: 0}}]",
            "correctors[0]: vtrace.rho_bar: expected number > 0 and ≤ 3e+38 or null, got 0 (whole "
            "number); meaning: bound of the importance ratio in the value targets; null or .inf: "
            "no bound; vtrace.lambda: expected number ≥ 0 and ≤ 1, got 'full' (text); meaning: how "
            "far errors are carried back: 1 over the whole unroll, 0 one step",
        ),
        (
            "[{importance_sampling: {rho_bar: 1e39}}]",
            "correctors[0]: importance_sampling.rho_bar: expected number > 0 and ≤ 3e+38 or null, "
            "got 1e+39 (number); meaning: bound of the importance ratio in the policy gradient; "
            "null or .inf: no bound",
        ),
        (
            "[{epsilon_correction: {epsilon: -1e-6}}]",
            "correctors[0]: epsilon_correction.epsilon: expected number > 0 and ≤ 1, got -1e-06",
        ),
        ("[kl_filter]", "correctors[0]: kl_filter.bound is missing: largest KL"),
        ("[{kl_filter: {bound: -1}}]", "correctors[0]: kl_filter.bound: expected number > 0 and "),
        ("[{vtrace: {c_bar: -.inf}}]", "correctors[0]: vtrace.c_bar: expected number > 0 and "),
        ("[{vtrace: 3}]", "correctors[0]: vtrace: expected a mapping, got 3 (whole number)"),
        (
            "[{vtrace: {}, importance_sampling: {}}]",
            "correctors[0]: expected a name or one `name: {arguments}`, got a mapping",
        ),
    ],
)
def test_a_corrector_that_cannot_be_is_named_with_what_was_expected(
    correctors: str, sentence: str, path: Path
) -> None:
    message = message_of(f"env: {{id: a}}\ncorrectors: {correctors}", path=path)

    assert message.startswith(f"{path}: line 2: {sentence}")


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("trainer.workers", 64),
        ("predictor.workers", 64),
        ("actors.processes", 500),
        ("tuner.max_trainers", 64),
        ("tuner.max_predictors", 64),
        ("tuner.max_actors", 500),
    ],
)
def test_a_count_of_none_of_fewer_and_of_too_many_gets_its_bounds(
    key: str, most: int, path: Path
) -> None:
    for count in (0, -1, most + 1):
        message = message_of("env: {id: CartPole-v1}", f"{key}={count}", path=path)
        assert message.startswith(
            f'override "{key}={count}": {key}: expected whole number ≥ 1 and ≤ {most}, '
            f"got {count} (whole number); meaning: "
        )
    for count in (1, most):
        path.write_text("env: {id: CartPole-v1}", encoding="utf-8")
        load_config(path, [f"{key}={count}"])


def test_a_wrong_value_in_a_list_gets_its_place(path: Path) -> None:
    message = message_of("env: {id: a}\npolicy: {hidden: [64, 0]}", path=path)

    assert message == (
        f"{path}: line 2: "
        "policy.hidden[1]: expected list of whole numbers ≥ 1 and ≤ 65536 or null, got 0 "
        "(whole number); meaning: widths of the hidden layers, in units; null: the architecture's "
        "own"
    )


def test_a_long_value_is_cut_in_the_message(path: Path) -> None:
    message = message_of(f"env: {{id: a}}\ntrainer: {{amp: {'x' * 500}}}", path=path)

    assert f"got '{'x' * 79}… (text);" in message


def test_every_mistake_gets_a_line_with_the_place_where_it_was_made(path: Path) -> None:
    message = message_of(
        "env: {id: a, idd: b}\nloss: {discount: 2}", "trainer.workers=none", path=path
    )

    assert [line.partition(" ")[0] for line in message.split("\n")] == [
        f"{path}:",
        "override",
        f"{path}:",
    ]
    assert "env.idd is not a known key" in message
    assert 'override "trainer.workers=none": trainer.workers: expected whole number' in message
    assert f"{path}: line 2: loss.discount: expected number" in message


def test_a_wrong_key_is_blamed_on_the_override_that_made_its_section(path: Path) -> None:
    message = message_of("env: {id: a}", "trainr.workers=3", path=path)

    assert message.startswith('override "trainr.workers=3": trainr is not a known key; ')
    # in a list of both, the line is easier to miss
    message = message_of("env: {id: a}\n\ntrainr: {}", "trainr.workers=3", path=path)
    assert message.startswith(f"{path}: line 3: trainr is not a known key; ")


def test_a_value_in_place_of_a_section_is_refused(path: Path) -> None:
    message = message_of("env: {id: a}\nloss: 3", path=path)

    assert message.startswith(
        f"{path}: line 2: loss: expected a section with keys, got 3 (whole number)"
    )


@pytest.mark.parametrize(
    ("override", "key", "first"),
    [
        ("run=", "run", "run.name"),
        ("loss={discount: 0.5}", "loss", "loss.kind"),
        ("env.atari=null", "env.atari", "env.atari.frame_skip"),
    ],
)
def test_an_override_of_a_whole_section_says_how_a_key_is_set(
    override: str, key: str, first: str, path: Path
) -> None:
    assert message_of("env: {id: a}\nrun: {seed: 3}", override, path=path) == (
        f'override "{override}": {key} is a section, whose keys are set one by one, for instance '
        f"{first}=…"
    )


@pytest.mark.parametrize(
    "override",
    [
        "policy.hidden=" + "[" * 5000 + "]" * 5000,
        "env.kwargs=" + "{a: " * 5000 + "1" + "}" * 5000,
        "env.kwargs" + ".a" * 5000 + "=1",
        "a." * 5000 + "a=1",
    ],
)
def test_what_is_nested_thousands_deep_is_refused_in_one_line(override: str, path: Path) -> None:
    message = message_of("env: {id: a}", override, path=path)

    assert message.startswith('override "') and "nested more than 50 deep" in message
    assert len(message) < 300 and "\n" not in message


def test_a_file_that_is_nested_thousands_deep_or_within_itself_gets_its_line(path: Path) -> None:
    message = message_of("env:\n  id: a\n  kwargs: " + "[" * 5000, path=path)
    assert message == f"{path}: line 3: nested more than 50 deep"

    message = message_of("env:\n  id: a\n  kwargs: &k\n    x: *k", path=path)
    assert message == f"{path}: line 4: the alias *k refers to a part of itself"


def _doubled(times: int) -> str:
    """Lists of which each has the one before twice: 2^times + … values behind aliases."""
    rows = [f"    a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, times + 1)]
    return "\n".join(["env:", "  id: a", "  kwargs:", "    a0: &a0 [1]", *rows])


def test_aliases_may_repeat_some_values_but_not_double_them_without_end(path: Path) -> None:
    # size of a list: 2, 5, 11, …: 3 · 2^n − 1; of each one but the last there are two aliases more
    assert sum(2 * (3 * 2**n - 1) for n in range(10)) < 10_000
    assert sum(2 * (3 * 2**n - 1) for n in range(11)) > 10_000
    path.write_text(_doubled(10))
    assert load_config(path).env.kwargs["a1"] == [[1], [1]]
    for times in (11, 18, 5000):
        message = message_of(_doubled(times), path=path)
        assert message == (
            f"{path}: line 15: the aliases up to *a10 repeat more than 10000 values; "
            "write fewer of them"
        )


def test_nesting_through_aliases_is_bounded_too(path: Path) -> None:
    rows = [f"    a{i}: &a{i} {'[' * 9}*a{i - 1}{']' * 9}" for i in range(1, 9)]
    message = message_of(
        "\n".join(["env:", "  id: a", "  kwargs:", "    a0: &a0 1", *rows]), path=path
    )
    assert message == f"{path}: line 10: nested more than 50 deep"  # a6: 3 sections, 54 lists


@pytest.mark.parametrize("text", ["", "env:", "env: {}", "run: {seed: 2}"])
def test_a_configuration_without_an_environment_says_what_goes_there(text: str, path: Path) -> None:
    assert message_of(text, path=path) == f"{path}: env.id is missing: {ENV_ID_MEANING}"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "nowhere.yaml")

    assert str(caught.value) == f"{tmp_path}/nowhere.yaml: there is no such configuration file"


def test_a_missing_file_with_the_name_of_a_shipped_one_says_how_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {
        "configs/pong.yaml": "pong",
        "pong.yaml": "pong",
        Path("configs/pong"): "pong",
        "configs/accerl/int8.yaml": "accerl/int8",
    }
    for given, name in named.items():
        with pytest.raises(ConfigError) as caught:
            load_config(given)
        assert str(caught.value) == (
            f"{given}: there is no such configuration file; {name}, without suffix, is the one "
            "that comes with aclearn"
        )


def test_a_folder_is_not_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)

    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory"


def test_a_file_that_is_not_text_is_named(path: Path) -> None:
    path.write_bytes(b"env: \xff")

    with pytest.raises(ConfigError) as caught:
        load_config(path)

    assert str(caught.value) == f"{path}: not UTF-8 text at byte 5"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "run:\n  seed: 1\nenv: [",
            "line 3, column 7: not valid YAML: while parsing a flow node, expected the node "
            "content, but found '<stream end>'",
        ),
        ("env:\n\tid: a\n", "line 2, column 1: not valid YAML: *"),
        ("env: {id: a\x01}", "*unacceptable character #x0001*"),
        ("run: {seed: !!int many}", "invalid literal*"),
        ("run: {seed: !!bool many}", "a value does not have the type of its tag (!!…)"),
        ("run: {seed: !!timestamp soon}", "a value does not have the type of its tag (!!…)"),
        (
            "env: {id: a}\n---\nenv: {id: b}\n",
            "line 2, column 1: not valid YAML: expected a single document in the stream, but found "
            "another document",
        ),
        ("- env", "expected sections like `env:` at the top, got a list"),
        (
            "env:\n  id: a\nloss:\n  discount: 0.9\n  discount: 0.8\n",
            "line 5: the key discount stands twice in the same section, first in line 4; remove "
            "one of them",
        ),
    ],
)
def test_what_is_no_configuration_in_yaml_gets_its_place(text: str, told: str, path: Path) -> None:
    assert fnmatchcase(message_of(text, path=path), f"{path}: {told}")


@pytest.mark.parametrize("override", ["run.seed", "", "=3", "run..seed=3", ".seed=3", "run.=3"])
def test_an_override_that_is_no_assignment_is_shown_one(override: str, path: Path) -> None:
    assert message_of("env: {id: a}", override, path=path) == (
        f'override "{override}": expected section.key=value, for instance run.seed=3'
    )


def test_an_override_whose_value_is_no_yaml_says_so(path: Path) -> None:
    message = message_of("env: {id: a}", "policy.hidden=[64", path=path)

    assert message.startswith(
        'override "policy.hidden=[64": the value is wrong: line 1, column 4: not valid YAML: '
    )


def test_an_override_below_a_single_value_says_what_stands_there(path: Path) -> None:
    assert message_of("env: {id: a}", "env.id.x=1", path=path) == (
        "override \"env.id.x=1\": env.id is 'a' (text), not a section, so it has no key x"
    )


def test_a_text_without_a_file_has_the_source_that_its_caller_names() -> None:
    with pytest.raises(ConfigError) as caught:
        config_from_yaml("- a", source="runs/pong-1/config.yaml")

    assert str(caught.value) == (
        "runs/pong-1/config.yaml: expected sections like `env:` at the top, got a list"
    )


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"env": {"id": "a"}, "trainer": {"workers": "two"}, "resident": {"envs": 0}},
        {"env": {"id": "a"}, "loss": {"kind": "ppo", "clip_range": 7}, "trainr": {}},
        {"env": {"id": "a"}, "actors": {"original_share": 0.5}},
    ],
    ids=["missing", "values", "names", "contradiction"],
)
def test_the_constructor_tells_mistakes_as_a_file_does_but_for_the_place(values) -> None:
    with pytest.raises(ConfigError) as of_file:
        config_from_yaml(json.dumps(values))
    with pytest.raises(ConfigError) as of_python:
        Config(**values)
    lines = str(of_file.value).splitlines()
    assert str(of_python.value).splitlines() == [
        re.sub(r"^configuration: (line \d+: )?", "", line) for line in lines
    ]


def test_the_constructor_of_a_group_tells_its_own_keys() -> None:
    with pytest.raises(ConfigError, match=r"^workers: expected whole number ≥ 1 .*, got 0 \(whole"):
        TrainerConfig(workers=0)
