"""A container whose monitor is away."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from aclearn.errors import RunFolderError
from aclearn.launch import StopFlag
from aclearn.runs import RunFolder
from services.container import monitor_watch
from services.container.health import read_reports
from services.container.monitor_watch import is_over
from services.role.health import WAITS_FOR_MONITOR, HealthFile


@pytest.mark.parametrize(
    ("heard", "over", "most_s", "reason"),
    [
        (False, False, 600.0, "the monitor has ended before its first answer"),
        (True, True, 600.0, "the run is over, and the monitor has ended before this role"),
        (True, False, 600.0, "the test"),
        (True, False, 0.05, "the monitor has been away for 600 seconds"),
    ],
)
def test_a_role_ends_without_its_monitor_only_if_nothing_is_left_to_wait_for(
    monkeypatch, tmp_path, heard, over, most_s, reason
) -> None:
    looks = iter(range(1000))

    def no_address(*_: object) -> None:
        if next(looks) >= 200:
            stop.set("the test")
        raise OSError

    monkeypatch.setattr(monitor_watch.socket, "getaddrinfo", no_address)
    monkeypatch.setattr(monitor_watch, "_LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(monitor_watch, "_AWAY_S", 0.02)
    monkeypatch.setattr(monitor_watch, "_AWAY_MOST_S", most_s)
    monkeypatch.setattr(
        monitor_watch, "read_reports", lambda _: [SimpleNamespace(heard_monitor=heard)]
    )
    stop = StopFlag()
    monitor_watch._watch(tmp_path, stop, lambda: over)
    assert stop.reason == reason


def test_a_role_that_has_heard_its_monitor_has_heard_it_while_that_is_away(tmp_path, tools) -> None:
    clock = tools.Clock()
    file = HealthFile(tmp_path, "actor-3", needs=(), silent_after_s=60.0, restarts=0, clock=clock)
    heard = []
    for waits_for in (WAITS_FOR_MONITOR, "a trainer", WAITS_FOR_MONITOR):
        clock.now += 1.0
        file.say(lambda waits_for=waits_for: waits_for)
        heard += [report.heard_monitor for report in read_reports(tmp_path)]
    assert heard == [False, True, True]


@pytest.mark.parametrize(
    ("reason", "age_s", "over"),
    [
        ("role failed: actor: no such game", -1.0, True),
        ("role failed: actor: no such game", 1.0, False),  # of a part before
        ("SIGTERM", -1.0, False),  # the monitor alone was stopped
    ],
)
def test_a_run_that_was_ended_since_this_role_began_is_over(tmp_path, reason, age_s, over) -> None:
    began = time.time()
    with RunFolder.create(tmp_path, "r", "env: {id: CartPole-v1}\n") as folder:
        folder.summary_path.write_text(json.dumps({"reason": reason}))
    os.utime(folder.summary_path, (began, began - age_s))
    assert is_over(folder.path, lambda: None, began) is over
    assert is_over(folder.path, lambda: "at a bound", began)


def test_a_folder_that_cannot_be_read_is_of_a_run_that_goes_on(tmp_path: Path) -> None:
    def at_bound() -> None:
        raise RunFolderError("no summary of this version")

    assert not is_over(tmp_path / "none", lambda: None, 0.0)
    assert not is_over(tmp_path, at_bound, 0.0)
