"""The dashboard asks monitors, over real sockets: answers, silence, damage, and users' actions."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from aclearn.errors import RunFolderError
from services.dashboard.monitors import ActionRefused, Monitors, act
from services.monitor.address_file import MonitorAddress, read_address
from tests.support.answering_monitor import KEY, Answering
from tests.support.keys import make_keys
from tests.support.waiting import wait_for


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "r").mkdir()
    return tmp_path / "r"


@pytest.fixture(params=["ipc", "tcp with keys"])
def answering(request, tools, run: Path, tmp_path: Path) -> Iterator[Answering]:
    if request.param == "ipc":
        made = Answering(tools, run, f"ipc://{tmp_path}/monitor.sock")
    else:
        make_keys(tmp_path / "keys")
        made = Answering(tools, run, "tcp://127.0.0.1:*", tmp_path / "keys")
    yield made
    made.close()


@pytest.fixture
def monitors(monkeypatch) -> Iterator[Monitors]:
    monkeypatch.setattr("services.dashboard.monitors._SILENT_AFTER_S", 0.5)
    monkeypatch.setattr("services.dashboard.monitors._ASK_EVERY_S", 0.05)
    monkeypatch.setattr("services.dashboard.monitors._LOOK_EVERY_S", 0.02)
    with Monitors() as made:
        yield made


def test_a_monitor_that_falls_silent_and_comes_back_is_told_as_such(
    answering: Answering, run: Path, monitors: Monitors
) -> None:
    assert stat.S_IMODE((run / "monitor.json").stat().st_mode) == 0o600
    assert monitors.look(run).status is None
    status = wait_for(lambda: monitors.look(run).status, "an answer")
    assert status["members"] == ["actor-0..1", "trainer-0"]
    assert status["actions"]["SaveCheckpoint"] == ""
    answering.silent.set()
    words = wait_for(lambda: monitors.look(run).words, "its silence is noticed")
    assert f"(process {os.getpid()} on {socket.gethostname()}) does not answer" in words
    before = monitors.revision
    answering.silent.clear()
    wait_for(lambda: monitors.look(run).status, "it is back")
    wait_for(lambda: monitors.revision > before, "pages are told")
    assert answering.monitor.state._users.supervisor is None  # who looks is no supervisor


def test_an_action_reaches_the_monitor_and_its_refusal_comes_back(
    answering: Answering, run: Path
) -> None:
    act(run, "SetLearningRate", {"rate": 1e-3})
    assert answering.monitor.state._channel.of_user() == {"SetLearningRate": {"rate": 1e-3}}
    with pytest.raises(ActionRefused, match="SetChain: compressor is not there now"):
        act(run, "SetChain", {"rung": 1})
    with pytest.raises(ActionRefused, match="expected an int, a float, a bool or a str"):
        act(run, "SetChain", {"rung": [1]})
    replace(answering.address, key="another").write(run / "monitor.json")
    with pytest.raises(ActionRefused, match=r"the key is not that of the run's monitor\.json"):
        act(run, "SetLearningRate", {"rate": 1e-4})


def test_an_action_that_nobody_answers_ends_at_its_deadline(
    answering: Answering, run: Path, monkeypatch
) -> None:
    monkeypatch.setattr("services.dashboard.monitors._ACTION_WITHIN_S", 0.2)
    answering.silent.set()
    with pytest.raises(ActionRefused, match=r"has not answered for 0\.2 s"):
        act(run, "SaveCheckpoint", {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"run": "r"}', "is damaged"),
        ("[" * 100_000, "is damaged"),
        (json.dumps([1] * 20_000), "is damaged"),
        ("tcp://192.0.2.1", "is damaged"),
        ("ipc:///nowhere/m.sock on elsewhere", "the monitor runs on elsewhere"),
        ("tcp://127.0.0.1:5555 keys", "cannot read keys"),
        ("tcp://192.0.2.1:5555", "keys"),
    ],
)
def test_a_damaged_or_foreign_address_is_said_and_asks_nobody(
    run: Path, monitors: Monitors, text: str, why: str
) -> None:
    address = MonitorAddress("r", text.split(" ")[0], socket.gethostname(), 1, None, KEY)
    if text.endswith("elsewhere"):
        address = replace(address, host="elsewhere")
    if text.endswith("keys"):
        address = replace(address, keys_dir=str(run / "nothing"))
    if "://" in text:
        address.write(run / "monitor.json")
    else:
        (run / "monitor.json").write_text(text)
    wait_for(lambda: why in monitors.look(run).words, "it is said")
    assert monitors.look(run).words.endswith("this is what the files say")
    with pytest.raises(ActionRefused, match=why):
        act(run, "SaveCheckpoint", {})


@pytest.mark.parametrize(
    "wrong",
    [
        *({"keys_dir": value} for value in (0, "", "\0", "\ud800")),
        *({"run": value} for value in (0, "", "r" * 1025, "\ud800")),
        {"address": 0},
        {"host": "\ud800"},
        {"pid": "1"},
    ],
)
def test_an_address_with_a_field_that_nobody_can_use_is_damaged(run: Path, wrong: dict) -> None:
    made = MonitorAddress("r", "tcp://127.0.0.1:5555", socket.gethostname(), 1, None, KEY)
    replace(made, **wrong).write(run / "monitor.json")
    with pytest.raises(RunFolderError, match="is damaged"):
        read_address(run / "monitor.json")


def test_a_run_that_cannot_be_asked_is_logged_once_and_the_others_are_asked(
    answering: Answering, run: Path, monitors: Monitors, monkeypatch, caplog
) -> None:
    right, bad = read_address, run.parent / "bad"

    def failing(path: Path) -> MonitorAddress | None:
        if path.parent == bad:
            raise TypeError("nobody expects this")
        return right(path)

    monkeypatch.setattr("services.dashboard.monitors.read_address", failing)
    wait_for(lambda: "nobody expects this" in monitors.look(bad).words, "it is said")
    wait_for(lambda: monitors.look(run).status, "the other one is asked")
    answering.silent.set()
    wait_for(lambda: "does not answer" in monitors.look(run).words, "it is asked again")
    assert "nobody expects this" in monitors.look(bad).words
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_deleted_run_asks_nobody_any_more(
    answering: Answering, run: Path, monitors: Monitors
) -> None:
    wait_for(lambda: monitors.look(run).status, "an answer")
    (run / "monitor.json").unlink()
    run.rmdir()
    wait_for(lambda: "no monitor has said" in monitors.look(run).words, "the run is gone")
