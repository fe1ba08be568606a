"""The run's clock across restarts of the monitor, independent of the wall clock."""

from __future__ import annotations

import time

import pytest

from aclearn.runs import RunFolder
from services.monitor.files import MonitorFiles
from services.monitor.run_clock import (
    STARTED_AT_VARIABLE,
    Moment,
    moment,
    read_moment,
    started_seconds_ago,
)


def test_a_moment_is_read_as_it_was_written() -> None:
    now = moment(12.5)
    assert read_moment(str(now)) == now
    for text in ("", "boot", "boot soon", None, "990.5"):
        assert read_moment(text) is None


@pytest.mark.parametrize(
    ("last", "now", "expected_s"),
    [
        (None, 1000.0, 9.5),
        (Moment("b", 980.0), 1000.0, 9.5),  # written by an earlier part of the run
        (Moment("b", 997.0), 1000.0, 3.0),  # by a monitor that died in this part
        (Moment("b", 99_997.0), 100_000.0, 3.0),  # the same, after a day
        (Moment("other", 997.0), 1000.0, 9.5),  # before the machine's reboot
        (Moment("b", 1003.0), 1000.0, 9.5),  # a container with a clock of its own
        (None, 980.0, 0.0),
        (None, 990.5 + 3601.0, 0.0),
        (Moment("b", float("nan")), 1000.0, 9.5),
    ],
)
def test_time_counts_from_the_command_or_from_the_last_line(
    monkeypatch, last, now, expected_s
) -> None:
    monkeypatch.setenv(STARTED_AT_VARIABLE, str(Moment("b", 990.5)))
    assert started_seconds_ago(last, Moment("b", now)) == expected_s
    assert started_seconds_ago(last, Moment("another boot", now)) == 0.0
    monkeypatch.delenv(STARTED_AT_VARIABLE)
    assert started_seconds_ago(last, Moment("b", now)) == 0.0  # started by hand


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_step_of_the_wall_clock_does_not_enter_the_run(tmp_path, monkeypatch, hours) -> None:
    monkeypatch.setenv(STARTED_AT_VARIABLE, str(moment(time.monotonic())))
    folder = RunFolder.create(tmp_path, "r", "{}\n")
    files = MonitorFiles(folder)
    view = files.open_metrics(0.0)
    assert files.write_line(view.line(7.0), view) == []
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + 3600.0 * hours)
    files.metrics.close(), files.tensorboard.close()
    again = MonitorFiles(folder)
    ago_s = started_seconds_ago(again.last_written, moment(time.monotonic()))
    assert 0.0 <= ago_s < 60.0
    assert 7.0 <= again.open_metrics(-ago_s).line(0.0)["time_s"] < 67.0
    again.metrics.close(), again.tensorboard.close()
