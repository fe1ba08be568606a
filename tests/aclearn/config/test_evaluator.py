"""The environment of an evaluator: keys of env with other values."""

from __future__ import annotations

import pytest

from aclearn.config import config_from_yaml, config_of_keys
from aclearn.errors import ConfigError

_KEYS = {"env.id": "m:Env", "env.kwargs": {"level": 1, "size": (3, 4)}, "evaluator.every_s": 60}


def test_named_keys_and_arguments_replace_the_runs_and_the_others_stay() -> None:
    own = {"kwargs": {"level": 2, "seeds": (1, 2)}, "clip_rewards": True}
    config = config_of_keys({**_KEYS, "env.life_loss_ends": False, "evaluator.env": own})
    env = config.evaluator_env
    assert env.kwargs == {"level": 2, "size": (3, 4), "seeds": (1, 2)}
    assert (env.id, env.clip_rewards, config.env.clip_rewards) == ("m:Env", True, False)
    assert config_from_yaml(config.to_yaml()) == config
    atari = {"env.id": "ALE/Pong-v5", "env.atari.frame_stack": 2, "evaluator.every_s": 60}
    config = config_of_keys({**atari, "evaluator.env": {"atari": {"noop_max": 0}}})
    assert (config.evaluator_env.atari.noop_max, config.evaluator_env.atari.frame_stack) == (0, 2)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"idd": "a"}, "evaluator.env.idd: is not a known key; did you mean evaluator.env.id?"),
        ({"frame_stack": 99}, "evaluator.env.frame_stack: expected whole number ≥ 1 and ≤ 16"),
        ({"atari": {"noop_max": 1}}, "evaluator.env.atari: m:Env is not an Atari game"),
    ],
)
def test_a_mistake_is_named_by_the_key_of_the_evaluator(own, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_of_keys({**_KEYS, "evaluator.env": own})
    assert words in str(raised.value)


def test_the_judge_is_the_evaluator_where_there_is_one() -> None:
    assert config_of_keys({"env.id": "a"}).judge == "training"
    assert config_of_keys(_KEYS).judge == "evaluator"
    assert config_of_keys({**_KEYS, "run.judge": "training"}).judge == "training"
