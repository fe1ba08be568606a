"""Runs with messages too large for their sockets are rejected before they start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aclearn.config import ActorsConfig, Config, EnvConfig, PredictorConfig
from aclearn.errors import ConfigError
from aclearn.policies import describe_architecture
from aclearn.types import EnvSpec
from services.start.preflight import check_sizes
from tests.support.env_specs import plain_spec

_IMAGES = plain_spec((4, 84, 84), "uint8", 6, 4)
_WEIGHTS = 4 * 512 * 3136  # the first hidden layer of nature


def _check(most_bytes: int, spec: EnvSpec = _IMAGES, **actors: object) -> None:
    architecture = describe_architecture(
        "nature",
        observation=spec.observation,
        actions=spec.action.mask_width,
    )
    given = ActorsConfig(**{"unroll_length": 5, "envs_per_group": 3, **actors})
    config = Config(
        env=EnvConfig(id="ALE/Pong-v5"), actors=given, predictor=PredictorConfig(max_batch=300)
    )
    check_sizes(config, spec, architecture, most_bytes=most_bytes)


_MANY = {"envs_per_group": 300, "unroll_length": 1}


@pytest.mark.parametrize(
    ("most_bytes", "actors", "words"),
    [
        (_WEIGHTS, {}, r"hidden\.0\.weight of nature are 6 MiB.*policy\.hidden"),
        (
            401 * 3 * 84 * 84,  # frames of 3 games
            {"unroll_length": 400},
            r"actors\.unroll_length: .*400 steps of 3 environments are 8 MiB.*envs_per_group",
        ),
        (
            # 300 environments of an unroll of one step: 2 frames each there, 4 in a request
            300 * 4 * 84 * 84,
            {**_MANY, "inference": "predictor"},
            r"actors\.envs_per_group: .*300 environments are 8 MiB",
        ),
    ],
)
def test_what_just_fits_is_let_through_and_a_byte_less_refused_by_its_key(
    most_bytes: int, actors: dict[str, object], words: str
) -> None:
    _check(most_bytes, **actors)
    with pytest.raises(ConfigError, match=words):
        _check(most_bytes - 1, **actors)


def test_without_a_predictor_no_request_counts() -> None:
    _check(300 * 4 * 84 * 84 - 1, **_MANY)


def test_masks_count_for_each_observation_of_an_unroll() -> None:
    spec = plain_spec((4,), "float32", 5000)
    wide = replace(spec, masked=True)
    size = 401 * 3 * 5000

    def check(most_bytes: int) -> None:
        config = Config(
            env=EnvConfig(id="ALE/Pong-v5"),
            actors=ActorsConfig(unroll_length=400, envs_per_group=3),
        )
        architecture = describe_architecture(
            "mlp", observation=wide.observation, actions=5000, hidden=(8,)
        )
        check_sizes(config, wide, architecture, most_bytes=most_bytes)

    check(size)
    with pytest.raises(ConfigError, match=r"unroll_length: the action masks .* 400 steps of 3 env"):
        check(size - 1)
