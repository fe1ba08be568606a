"""A function in a process of its own: arguments of any length, a limit on time, a stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import psutil
import pytest

from aclearn.config import config_from_yaml
from aclearn.launch import StopFlag
from services.policy.torch_elsewhere import Questions, ask_torch
from services.role import isolated
from tests.support.waiting import patience

#: More than a pipe holds.
_LONG = 300_000


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with the functions to call."""
    name = f"called_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text("def length(say, text):\n    say(length=len(text))\n")
    (tmp_path / f"{name}_plays.py").write_text(
        "from aclearn.envs.deadline import environment_faults\n"
        "def faults(say):\n    say(interrupt=KeyboardInterrupt in environment_faults())\n"
    )
    (tmp_path / f"{name}_hangs.py").write_text("import time\ntime.sleep(30)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return name


def test_a_long_payload_arrives(module: str) -> None:
    answer = isolated.call(f"{module}:length", {"text": "x" * _LONG}, within_s=60.0)
    assert answer.said == {"length": _LONG}


def test_a_keyboard_interrupt_of_an_environment_is_its_fault_there(module: str) -> None:
    assert isolated.call(f"{module}_plays:faults", {}, within_s=60.0).said == {"interrupt": True}


@pytest.mark.parametrize("ends", ["the time", "a signal"])
def test_a_process_that_never_reads_its_payload_is_ended(module: str, ends: str) -> None:
    begun, before = time.monotonic(), set(psutil.Process().children())
    stop = StopFlag()
    if ends == "a signal":
        threading.Timer(0.5, stop.set, ["SIGINT"]).start()
    within_s = 0.5 if ends == "the time" else 600.0
    answer = isolated.call(
        f"{module}_hangs:length", {"text": "x" * _LONG}, within_s=within_s, stop=stop
    )
    assert answer.late and not answer.said
    assert time.monotonic() - begun < 15.0 * patience()
    assert set(psutil.Process().children()) <= before


def test_a_stop_ends_the_wait_for_torch() -> None:
    stop = StopFlag()
    stop.set("SIGINT")
    begun = time.monotonic()
    config = config_from_yaml("env: {id: 'm:e'}\n")
    assert ask_torch(config, Questions("{}", learning=True, amp=True), stop=stop) == {}
    assert time.monotonic() - begun < 5.0 * patience()
