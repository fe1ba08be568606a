"""Figures that environments put into info at the end of an episode: any value is data."""

from __future__ import annotations

import numpy as np
import pytest

from aclearn.rollout import InfoMetrics
from aclearn.types import MOST_INFO_METRICS


class Hostile:
    def __array__(self, *_, **__):
        raise SystemError("no array")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, 1.0),
        (np.bool_(False), 0.0),
        (3, 3.0),
        (0.25, 0.25),
        (np.float32(0.5), 0.5),
        (np.array(7), 7.0),
        (np.array([2.5]), 2.5),
        ([4], 4.0),
        (float("nan"), None),
        (float("inf"), None),
        (1e200, None),
        ("won", None),
        (None, None),
        (np.zeros(3), None),
        ([], None),
        (10**400, None),
        (object(), None),
        (Hostile(), None),
    ],
)
def test_numbers_and_flags_are_figures_and_anything_else_is_counted(value, number, caplog) -> None:
    metrics = InfoMetrics(["success"], "Maze-v0")
    for _ in range(2):
        found = metrics.read({"success": value, "other": "x"})
        assert found == ({} if number is None else {"success": number})
    assert metrics.refused == (2 if number is None else 0)
    assert caplog.text.count("env=Maze-v0 key='success'") == (number is None)  # once


def test_a_mapping_gives_all_its_numbers_and_a_path_one_of_them() -> None:
    info = {"episode": {"r": np.float32(12.0), "l": 9, "t": 0.5}, "a.b": 4.0, "Stars won": 1}
    read = InfoMetrics(["episode", "a.b", "Stars won"], "x").read
    assert read(info) == {
        "episode_r": 12.0, "episode_l": 9.0, "episode_t": 0.5, "a_b": 4.0, "stars_won": 1.0,
    }  # fmt: skip
    assert InfoMetrics(["episode.l"], "x").read(info) == {"episode_l": 9.0}
    many = {"many": {f"n{i}": i for i in range(1000)}}
    assert len(InfoMetrics(["many"], "x").read(many)) == MOST_INFO_METRICS


def test_a_key_that_never_comes_is_named_with_those_that_do(caplog) -> None:
    metrics = InfoMetrics(["sucess"], "x")
    assert metrics.read({"success": 1.0}) == {} and metrics.refused == 0
    assert "key='sucess'" in caplog.text and "its keys: success" in caplog.text
