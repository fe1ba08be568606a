"""`aclearn health` of a role, by its report and the clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aclearn.config import config_from_yaml
from services.container.health import health_of, read_reports
from services.role.health import HealthFile
from services.roles import ROLES

CHAIN = "compressor: {chain: [onnx]}\n"
ASKS = "actors: {inference: predictor}\n"


def a_file(directory: Path, clock, **changes) -> HealthFile:
    settings = {"needs": ("trainer",), "silent_after_s": 60.0, "restarts": 2}
    return HealthFile(directory, "actor-3", clock=clock, **settings | changes)


def test_a_role_works_waits_hangs_or_has_died(tmp_path, tools, monkeypatch) -> None:
    clock = tools.Clock(1000.0)
    directory = tmp_path / "not yet there"
    assert health_of(directory, clock.now) == (
        False,
        f"no role runs here: no report in {directory}",
    )
    file = a_file(directory, clock)
    file.say(lambda: "a trainer")
    assert health_of(directory, clock.now) == (False, "actor-3 waits for a trainer")
    # a restart would not mend this
    assert health_of(directory, clock.now, alive=True) == (True, "actor-3 waits for a trainer")
    file.say(lambda: "")  # within the same second: nothing is written
    assert health_of(directory, clock.now) == (False, "actor-3 waits for a trainer")
    clock.now += 1.0
    file.say(lambda: "")
    assert health_of(directory, clock.now + 60.0) == (True, "actor-3 works")
    assert health_of(directory, clock.now + 61.0) == (
        False,
        "actor-3 hangs: no report for 61 s",
    )
    assert not health_of(directory, clock.now + 61.0, alive=True)[0]
    [report] = read_reports(directory)
    assert (report.pid, report.restarts) == (os.getpid(), 2) and report.rss_bytes > 1e6
    (directory / "torn.json").write_text('{"name": "act')
    monkeypatch.setattr("psutil.pid_exists", lambda pid: False)
    assert health_of(directory, clock.now) == (
        False,
        f"actor-3 has died (process {os.getpid()})",
    )
    file.close()
    assert read_reports(directory) == []


def test_a_disk_that_refuses_does_not_stop_the_role(tmp_path, tools) -> None:
    (tmp_path / "file").touch()
    file = a_file(tmp_path / "file", tools.Clock())
    file.say(lambda: "")
    file.close()


@pytest.mark.parametrize(
    ("settings", "role", "needed"),
    [
        ("", "actor", ("trainer",)),
        ("", "monitor", ("trainer",)),
        ("", "trainer", ()),
        (CHAIN, "actor", ("trainer", "compressor")),
        (CHAIN, "compressor", ("trainer",)),
        (ASKS, "actor", ("trainer", "predictor")),
        (ASKS, "predictor", ("trainer",)),
        (ASKS + CHAIN, "actor", ("trainer", "predictor")),
        (ASKS + CHAIN, "predictor", ("compressor",)),
    ],
)
def test_what_a_role_cannot_work_without(settings: str, role: str, needed: tuple[str, ...]) -> None:
    config = config_from_yaml("env: {id: CartPole-v1}\n" + settings)
    assert ROLES[role].needs(config) == needed
