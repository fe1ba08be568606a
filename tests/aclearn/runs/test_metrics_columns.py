"""Metrics lines as columns."""

from __future__ import annotations

import numpy as np

from aclearn.runs import metrics_columns


def test_every_figure_of_any_line_is_a_column_with_a_value_for_each_line() -> None:
    columns = metrics_columns(
        [
            {"time_s": 1, "return_mean_100": None, "wait_share": {"actor": {"emulator": 0.5}}},
            {"time_s": 2.5, "return_mean_100": 3.0, "checkpoint_error": "full"},
        ]
    )
    expected = {
        "time_s": [1.0, 2.5],
        "return_mean_100": [np.nan, 3.0],
        "wait_share/actor/emulator": [0.5, np.nan],
    }
    assert list(columns) == [*expected, "checkpoint_error"]
    for name, values in expected.items():
        assert columns[name].dtype == np.float64
        np.testing.assert_array_equal(columns[name], values)
    assert columns["checkpoint_error"].tolist() == [None, "full"]
    assert metrics_columns([]) == {}
    healthy = metrics_columns([{"checkpoint_error": None, "policies": {"a": {"policy": None}}}])
    assert {name: column.tolist() for name, column in healthy.items()} == {
        "checkpoint_error": [None],
        "policies/a/policy": [None],
    }
