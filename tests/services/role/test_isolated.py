"""A function in a process of its own: arguments of any length, a limit on time, a stop."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from aclearn.config import Config, config_from_yaml
from aclearn.launch import StopFlag
from services.policy.users_network import await_network
from services.role import isolated
from services.role.torch_checks import amp_elsewhere, check_with_torch_elsewhere
from tests.support.env_specs import plain_spec

#: More than a pipe holds.
_LONG = 300_000
_SPEC = plain_spec((4,), "float32", 2)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with the functions to call."""
    name = f"called_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text("def length(say, text):\n    say(length=len(text))\n")
    (tmp_path / f"{name}_hangs.py").write_text("import time\ntime.sleep(30)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return name


def test_a_long_payload_arrives(module: str) -> None:
    answer = isolated.call(f"{module}:length", {"text": "x" * _LONG}, within_s=60.0)
    assert answer.said == {"length": _LONG}


def test_a_process_that_never_reads_its_payload_ends_in_time(module: str) -> None:
    begun = time.monotonic()
    answer = isolated.call(f"{module}_hangs:length", {"text": "x" * _LONG}, within_s=0.5)
    assert answer.late
    assert time.monotonic() - begun < 15.0


def _amp(config: Config, stop: StopFlag) -> None:
    assert amp_elsewhere(config, stop=stop) is None


def _refusal(config: Config, stop: StopFlag) -> None:
    check_with_torch_elsewhere(config, stop=stop)  # no answer is no refusal


def _network(config: Config, stop: StopFlag) -> None:
    assert not await_network(config, _SPEC, stop)


@pytest.mark.parametrize("asks", [_amp, _refusal, _network])
def test_a_stop_ends_the_wait_for_torch(module: str, monkeypatch: pytest.MonkeyPatch, asks) -> None:
    config = config_from_yaml(
        f"env: {{id: 'm:e'}}\ntrainer: {{device: 'cuda:99'}}\n"
        f"policy: {{architecture: '{module}:Net'}}\n"
    )
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # as in `aclearn train`
    stop = StopFlag()
    stop.set("SIGINT")
    begun = time.monotonic()
    asks(config, stop)
    assert time.monotonic() - begun < 5.0
