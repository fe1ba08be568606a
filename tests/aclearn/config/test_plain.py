"""Values of Python become plain data, or are refused where no file can hold them."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest

from aclearn.config import Config, config_from_yaml
from aclearn.errors import ConfigError


class _Colour(enum.StrEnum):
    RED = "red"


def test_values_of_python_are_written_as_plain_data_and_tuples_stay_tuples(tmp_path) -> None:
    kwargs = {
        "size": (np.int64(5), (2.5, [1, (2,)])),
        "file": tmp_path / "maze.txt",
        "deep": {"on": np.bool_(True), "array": np.array(3), "scale": np.float32(0.5), 3: None},
        "names": [np.str_("a"), _Colour.RED],
    }
    config = Config(
        run={"seed": np.int64(7), "dir": tmp_path},
        env={"id": "CartPole-v1", "kwargs": kwargs},
        policy={"hidden": [np.int32(64), 32]},
    )
    expected = {
        "size": (5, (2.5, [1, (2,)])),
        "file": str(tmp_path / "maze.txt"),
        "deep": {"on": True, "array": 3, "scale": 0.5, 3: None},
        "names": ["a", "red"],
    }
    assert config.env.kwargs == expected
    assert (config.run.seed, config.run.dir, config.policy.hidden) == (7, str(tmp_path), (64, 32))
    again = config_from_yaml(config.to_yaml())
    assert again == config and again.env.kwargs == expected
    assert "hidden: [" not in config.to_yaml() and config.to_yaml().count("!!python/tuple") == 3


_LOOP: list[Any] = []
_LOOP.append(_LOOP)


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"reward": print}, r"env\.kwargs\.reward: got <built-in function .*, which config\.yaml"),
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
