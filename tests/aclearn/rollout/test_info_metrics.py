"""Figures that environments put into info at the end of an episode: any value is data."""

from __future__ import annotations

from typing import Any, NoReturn

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


def test_of_two_keys_with_one_name_the_first_is_the_figure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = InfoMetrics(["Erfolg für alle", "won!", "won", "成功" * 20], "x")
    info = {"Erfolg für alle": 1, "won!": 2, "won": 3, "成功" * 20: 4}
    for _ in range(2):
        found = metrics.read(info)
        assert found == {"erfolg_für_alle": 1.0, "won": 2.0, "成功" * 8: 4.0}  # 48 bytes
    assert metrics.refused == 2
    assert "key='won' detail=\"its figure won is that of 'won!'\"" in caplog.text


def test_a_key_that_never_comes_is_named_with_those_that_do(caplog) -> None:
    metrics = InfoMetrics(["sucess"], "x")
    assert metrics.read({"success": 1.0}) == {} and metrics.refused == 0
    assert "key='sucess'" in caplog.text and "its keys: success" in caplog.text


def test_the_first_names_of_a_process_are_kept_and_more_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = InfoMetrics(["n"], "x")
    first = {f"n_{i}": 1.0 for i in range(MOST_INFO_METRICS)}
    assert metrics.read({"n": {str(i): 1 for i in range(MOST_INFO_METRICS)}}) == first
    for _ in range(2):
        assert metrics.read({"n": {"late": 1, "0": 2}}) == {"n_0": 2.0}
    assert metrics.refused == 2
    assert caplog.text.count("key='n.late'") == 1


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError("no text")

    __str__ = __repr__


class Unread(dict[str, int]):
    def items(self) -> NoReturn:
        raise RuntimeError("no items")


def test_a_value_key_or_mapping_that_raises_is_refused_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = InfoMetrics(["value", "keys", "mapping", "won"], "x")
    info = {"value": Unshown(), "keys": {Unshown(): 1}, "mapping": Unread(a=1), "won": 1}
    for _ in range(2):
        assert metrics.read(info) == {"won": 1.0}
    assert metrics.refused == 6
    for key in ("value", "keys", "mapping"):
        assert caplog.text.count(f"key='{key}'") == 1
    absent = InfoMetrics(["absent"], "x")
    hidden: dict[Any, int] = {Unshown(): 1}
    assert absent.read(hidden) == {}
    assert "key='absent' detail='reading it raised RuntimeError'" in caplog.text
