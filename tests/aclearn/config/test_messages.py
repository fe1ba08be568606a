"""Each user error gives a line with the key, the place, and how to mend it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from aclearn.config import Config, TrainerConfig, config_from_yaml, load_config
from aclearn.errors import ConfigError

#: Override => what follows its key; "…" stands for any text.
_VALUES = r"""
actors.processes=two => expected whole number ≥ 1 and ≤ 16384 or auto, got 'two' (text); meaning:
actors.processes='3' => expected whole number ≥ 1 and ≤ 16384 or auto, got '3' (text);
actors.processes=1.5 => expected whole number ≥ 1 and ≤ 16384 or auto, got 1.5 (number);
actors.processes=true => expected whole number ≥ 1 and ≤ 16384 or auto, got true;
actors.processes=0 => expected whole number ≥ 1 and ≤ 16384 or auto, got 0 (whole number);
actors.processes= => expected whole number ≥ 1 and ≤ 16384 or auto, got null;
actors.processes=[1] => expected whole number ≥ 1 and ≤ 16384 or auto, got a list;
actors.processes={a: 1} => expected whole number ≥ 1 and ≤ 16384 or auto, got a mapping;
trainer.workers=65 => expected whole number ≥ 1 and ≤ 64 or auto, got 65 (
predictor.workers=65 => expected whole number ≥ 1 and ≤ 64 or auto, got 65 (
actors.processes=16385 => expected whole number ≥ 1 and ≤ 16384 or auto, got 16385 (
tuner.max_trainers=65 => expected whole number ≥ 1 and ≤ 64, got 65 (
tuner.max_predictors=65 => expected whole number ≥ 1 and ≤ 64, got 65 (
tuner.max_actors=16385 => expected whole number ≥ 1 and ≤ 16384, got 16385 (
loss.discount=1.01 => expected number ≥ 0 and ≤ 1, got 1.01 (number);
loss.discount=true => expected number ≥ 0 and ≤ 1, got true;
loss.kind=actor-critic => 'actor-critic' is unknown; expected one of …; did you mean actor_critic?
loss.entropy_cost=1e39 => expected number ≥ 0 and ≤ 1e+06, got 1e+39 (number);
optimiser.max_grad_norm=.inf => expected number ≥ 0, got inf (number);
optimiser.adam_beta1=1.0 => expected number ≥ 0 and < 1, got 1.0 (number);
env.clip_rewards=yes => expected true or false, got 'yes' (text);
env.clip_rewards=1 => expected true or false, got 1 (whole number);
env.id=Pong-ram-v4 => Pong-ram-v4 shows the console's memory, … ALE/Pong-v5 shows its screen
env.id=[a] => expected text, got a list;
env.id=null => expected text, got null;
env.kwargs=[1] => expected mapping whose keys are text, got a list;
trainer.amp=bf32 => expected one of auto, off, bf16, got 'bf32' (text);
trainer.device=gpu => expected text that matches ^(auto|cpu|cuda(:\d{1,3})?)$, got 'gpu' (text);
policy.hidden=64 => expected list of whole numbers ≥ 1 and ≤ 65536 or null, got 64 (
policy.architecture=impala-lstm => 'impala-lstm' is …kind to lstm, and this to impala-resnet
policy.architecture=gru => 'gru' is unknown: a memory …memory.kind to gru, and this to auto
policy.memory.size=0 => expected whole number ≥ 1 and ≤ 65536, got 0 (whole num
policy.architecture=resnet => 'resnet' is unknown; expected one of auto, nature, a
monitor.port=70000 => expected whole number ≥ 1 and ≤ 65535 or null, got 70000 (
run.metrics_every_s=6 => expected number > 0 and ≤ 5, got 6 (whole number);
run.name=../up => expected text that matches ^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$ or null, got '../up'
correctors=vtrace => expected list of vtrace, importance_sampling,
"""
#: Other override => the sentence about it.
_OVERRIDES = """
learning_rate=1e-3 => learning_rate is not a known key; did you mean optimiser.learning_rate? The k
trainr.workers=3 => trainr is not a known key;
run= => run is a section, whose keys are set one by one, for instance run.name=
loss={discount: 0.5} => loss is a section, whose keys are set one by one, for instance loss.kind=
env.atari=null => env.atari is a section, … for instance env.atari.frame_skip=
policy.hidden=[64 => the value is wrong: line 1, column 4: not valid YAML:
env.id.x=1 => env.id is 'a' (text), not a section, so it has no key x
run.seed => expected section.key=value, for instance run.seed=3
 => expected section.key=value, for instance run.seed=3
=3 => expected section.key=value, for instance run.seed=3
run..seed=3 => expected section.key=value, for instance run.seed=3
.seed=3 => expected section.key=value, for instance run.seed=3
run.=3 => expected section.key=value, for instance run.seed=3
"""
#: What follows `env: {id: a}` in a file => what is told of its second line.
_SECOND_LINES = """
optimiser: {learning_rat: 1.0} => optimiser.learning_rat is not a known key; did you mean …?
trainr: {workers: 1} => trainr is not a known key; did you mean trainer? The keys at the top are
network: {zzz: 1} => network.zzz is not a known key. The keys of network are bind_host, announce_
trainer: {unrols: 3} => trainer.unrols is not a known key; did you mean trainer.unrolls_per_batch?
loss: 3 => loss: expected a section with keys, got 3 (whole number)
policy: {hidden: [64, 0]} => policy.hidden[1]: expected list of whole numbers …, got 0 (whole numb
correctors: [{vtrace: {lambda_: 1}}] => … did you mean vtrace.lambda? … are rho_bar, c_bar, lambda,
monitor: {strategies: [{threshold: {epsilon:-1}}]} => … write a space after the colon: `epsilon: -1`
correctors: [vtrace, vtrac] => correctors[1]: 'vtrac' is unknown; … mean vtrace or retrace or tree_b
correctors: [{vtrace: {lambda: full, rho_bar: 0}}] => correctors[0]: vtrace.rho_bar: …; vtrace.lambd
correctors: [{vtrace: {c_bar: 1e39}}] => … expected number > 0 and ≤ 3e+38 or null, got 1e+39
correctors: [{vtrace: {c_bar: -.inf}}] => correctors[0]: vtrace.c_bar: expected number > 0 and
correctors: [kl_filter] => correctors[0]: kl_filter.bound is missing: largest KL
correctors: [{vtrace: 3}] => correctors[0]: vtrace: expected a mapping, got 3 (whole number)
correctors: [{vtrace: {}, n_step: {}}] => correctors[0]: expected a name or one `name: {arguments}`
"""
#: A whole file, with its line breaks as \n => what is told of it.
_FILES = r"""
env: {id: a, atari: {screensize: 42}} => line 1: env.atari.screensize …mean env.atari.screen_size?
 => env.id is missing: environment: an Atari game (ALE/Pong-v5),
env: => env.id is missing: environment:
env: {} => env.id is missing: environment:
run: {seed: 2} => env.id is missing: environment:
run:\n  seed: 1\nenv: [ => line 3, column 7: not valid YAML: while parsing a flow node,
env:\n\tid: a\n => line 2, column 1: not valid YAML:
env: {id: a\x01} => unacceptable character #x0001
run: {seed: !!int many} => invalid literal
run: {seed: !!bool many} => a value does not have the type of its tag (!!
run: {seed: !!timestamp soon} => a value does not have the type of its tag (!!
env: {id: a}\n---\nenv: {id: b}\n => line 2, column 1: not valid YAML: expected a single document
- env => expected sections like `env:` at the top, got a list
env:\n  id: a\n  id: b => line 3: the key id stands twice in the same section, first in line 2;
env:\n  id: a\n  kwargs: &k\n    x: *k => line 4: the alias *k refers to a part of itself
"""


def _table(text: str) -> list[list[str]]:
    return [line.split(" => ") for line in text.strip("\n").split("\n")]


def _message_of(text: str, *overrides: str, path: Path) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


def _begins(message: str, told: str) -> bool:
    return bool(re.match(".*".join(map(re.escape, told.split("…"))), message))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "game.yaml"


@pytest.mark.parametrize(("override", "told"), _table(_VALUES))
def test_a_value_gets_what_was_expected_and_what_was_found(
    override: str, told: str, path: Path
) -> None:
    message = _message_of("env: {id: CartPole-v1}", override, path=path)
    assert _begins(message, f'override "{override}": {override.partition("=")[0]}: {told}'), message


@pytest.mark.parametrize(("override", "told"), _table(_OVERRIDES))
def test_an_override_that_cannot_be_says_how_a_key_is_set(
    override: str, told: str, path: Path
) -> None:
    message = _message_of("env: {id: a}\nrun: {seed: 3}", override, path=path)
    assert _begins(message, f'override "{override}": {told}'), message


@pytest.mark.parametrize(("text", "told"), _table(_SECOND_LINES))
def test_a_mistake_in_a_file_gets_its_line_its_key_and_the_nearest_one(
    text: str, told: str, path: Path
) -> None:
    message = _message_of(f"env: {{id: a}}\n{text}", path=path)
    assert _begins(message, f"{path}: line 2: {told}"), message


@pytest.mark.parametrize(("text", "told"), _table(_FILES))
def test_what_is_no_configuration_gets_its_place(text: str, told: str, path: Path) -> None:
    message = _message_of(text.encode().decode("unicode_escape"), path=path)
    assert _begins(message, f"{path}: {told}"), message


def test_a_long_value_is_cut_in_the_message(path: Path) -> None:
    message = _message_of(f"env: {{id: a}}\ntrainer: {{amp: {'x' * 500}}}", path=path)
    assert f"got '{'x' * 79}… (text);" in message


def test_every_mistake_gets_a_line_with_the_place_where_it_was_made(path: Path) -> None:
    text, override = "env: {id: a, idd: b}\nloss: {discount: 2}", "trainer.workers=none"
    lines = _message_of(text, override, path=path).split("\n")
    places = [f"{path}: line 1: env.idd ", f'override "{override}": ', f"{path}: line 2: loss.disc"]
    assert [line[: len(place)] for line, place in zip(lines, places, strict=True)] == places
    # the file's line, where it and an override name the same section
    message = _message_of("env: {id: a}\n\ntrainr: {}", "trainr.workers=3", path=path)
    assert message.startswith(f"{path}: line 3: trainr is not a known key; ")


@pytest.mark.parametrize(
    "override",
    [
        "policy.hidden=" + "[" * 5000 + "]" * 5000,
        "env.kwargs=" + "{a: " * 5000 + "1" + "}" * 5000,
        "env.kwargs" + ".a" * 5000 + "=1",
        "a." * 5000 + "a=1",
    ],
    ids=["lists", "mappings", "keys of a value", "keys"],
)
def test_what_is_nested_thousands_deep_is_refused_in_one_line(override: str, path: Path) -> None:
    message = _message_of("env: {id: a}", override, path=path)
    assert message.startswith('override "') and "nested more than 50 deep" in message
    assert len(message) < 300 and "\n" not in message


def _kwargs(*rows: str) -> str:
    return "\n".join(["env:", "  id: a", "  kwargs:", *(f"    {row}" for row in rows)])


def test_aliases_may_repeat_some_values_but_not_double_them_without_end(path: Path) -> None:
    def doubled(times: int) -> str:
        """Lists of which each has the one before twice: 2^times + … values behind aliases."""
        rows = [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, times + 1)]
        return _kwargs("a0: &a0 [1]", *rows)

    # size of a list: 2, 5, 11, …: 3 · 2^n − 1; of each one but the last there are two aliases more
    assert sum(2 * (3 * 2**n - 1) for n in range(10)) < 10_000
    assert sum(2 * (3 * 2**n - 1) for n in range(11)) > 10_000
    path.write_text(doubled(10))
    assert load_config(path).env.kwargs["a1"] == [[1], [1]]
    for times in (11, 18, 5000):
        told = "the aliases up to *a10 repeat more than 10000 values; write fewer of them"
        assert _message_of(doubled(times), path=path) == f"{path}: line 15: {told}"


def test_nesting_in_a_file_and_through_aliases_is_bounded_too(path: Path) -> None:
    message = _message_of("env:\n  id: a\n  kwargs: " + "[" * 5000, path=path)
    assert message == f"{path}: line 3: nested more than 50 deep"
    rows = [f"a{i}: &a{i} {'[' * 9}*a{i - 1}{']' * 9}" for i in range(1, 9)]
    message = _message_of(_kwargs("a0: &a0 1", *rows), path=path)
    assert message == f"{path}: line 10: nested more than 50 deep"  # a6: 3 sections, 54 lists


def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bytes.yaml").write_bytes(b"env: \xff")
    missing = "there is no such configuration file"
    shipped = f"{missing}; %s, without suffix, is the one that comes with aclearn"
    for given, told in {
        "nowhere.yaml": missing,
        tmp_path: "cannot be read: Is a directory",
        "bytes.yaml": "not UTF-8 text at byte 5",
        "configs/pong.yaml": shipped % "pong",
        "pong.yaml": shipped % "pong",
        Path("configs/pong"): shipped % "pong",
        "configs/accerl/int8.yaml": shipped % "accerl/int8",
    }.items():
        with pytest.raises(ConfigError) as caught:
            load_config(given)
        assert str(caught.value) == f"{given}: {told}"


def test_a_text_without_a_file_has_the_source_that_its_caller_names() -> None:
    with pytest.raises(ConfigError, match=r"^runs/pong-1/config.yaml: expected sections like `env"):
        config_from_yaml("- a", source="runs/pong-1/config.yaml")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"env": {"id": "a"}, "trainer": {"workers": "two"}, "resident": {"envs": 0}},
        {"env": {"id": "a"}, "loss": {"kind": "ppo", "clip_range": 7}, "trainr": {}},
        {
            "env": {"id": "a"},
            "actors": {"original_share": 0.5},
            "optimiser": {"schedule": "linear"},
        },
    ],
    ids=["missing", "values", "names", "contradictions"],
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
