"""Hyper-parameters that a population may mutate."""

from __future__ import annotations

from typing import Any

import pytest

from aclearn.config import config_from_yaml, config_of_keys
from aclearn.errors import ConfigError
from aclearn.population import Parameter, search_space

_KEYS = {"env.id": "CartPole-v1", "population.members": 4}


def test_keys_may_be_dotted_or_in_sections_and_name_the_arguments_of_a_corrector() -> None:
    ranges = {
        "optimiser": {"learning_rate": [1e-5, 1e-1]},
        "correctors.vtrace.lambda": [0.8, 1],
        "trainer.epochs": [1, 8],
        "correctors": {"vtrace": {"rho_bar": [1.0, 2.0]}},
    }
    config = config_of_keys({**_KEYS, "population.mutate": ranges})
    assert list(search_space(config)) == [
        Parameter("optimiser.learning_rate", 1e-5, 1e-1),
        Parameter("correctors.vtrace.lambda", 0.8, 1.0),
        Parameter("trainer.epochs", 1, 8, whole=True),
        Parameter("correctors.vtrace.rho_bar", 1.0, 2.0),
    ]
    assert config_from_yaml(config.to_yaml()) == config


@pytest.mark.parametrize(
    ("key", "ends", "words"),
    [
        ("optimiser.learning_rat", [1, 2], "is not a key of this configuration; did you mean "
         "optimiser.learning_rate?"),
        ("loss.clip_range", [0.1, 0.2], "is not a key of this configuration"),
        ("nothing.at_all", [1, 2], "is not a key of this configuration"),
        ("correctors.tis.bound", [1, 2], "names no corrector of this configuration; there are "
         "vtrace, importance_sampling"),
        ("env.frame_stack", [1, 2], "may not be mutated (another value would be another run)"),
        ("run.seed", [1, 2], "may not be mutated"),
        ("loss.kind", [1, 2], "may not be mutated (it is 'actor_critic' (text))"),
        ("loss.normalise_advantages", [0, 1], "may not be mutated (it is false)"),
        ("optimiser.epsilon", [2, 1], "expected its least and its largest value"),
        ("optimiser.epsilon", [1], "expected its least and its largest value"),
        ("trainer.epochs", [1, 2.5], "expected whole numbers"),
    ],
)  # fmt: skip
def test_what_does_not_exist_or_may_not_be_mutated_is_refused(
    key: str, ends: list[Any], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        config_of_keys({**_KEYS, "population.mutate": {key: ends}})
    assert f"population.mutate: {key}" in str(refused.value)
    assert words in str(refused.value)


def test_a_population_has_two_members_at_least() -> None:
    with pytest.raises(ConfigError, match="whole number ≥ 2 and ≤ 1000 or null, got 1"):
        config_of_keys({**_KEYS, "population.members": 1})


def test_the_evaluators_keys_judge_a_population_without_an_evaluator() -> None:
    config = config_of_keys({**_KEYS, "evaluator.episodes": 5, "evaluator.greedy": True})
    assert not config.evaluator.enabled
    with pytest.raises(ConfigError, match="no effect without an evaluator"):
        config_of_keys({**_KEYS, "evaluator.keep": 5})
