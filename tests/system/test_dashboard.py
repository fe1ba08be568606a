"""The dashboard as a process of its own, asked over HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from aclearn.errors import ConfigError
from aclearn.launch import StopFlag
from services.commands.beside import dashboard_beside
from tests.support.waiting import DEADLINE_S, wait_for


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("run: {}\n")
    (run / "metrics.jsonl").write_text('{"time_s": 1.0, "env_steps": 5}\n')
    return run.parent


def _arguments(runs: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "aclearn", "dashboard", str(runs), *more]


def _environment(runs: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(runs.parent / "cache")}


@contextmanager
def _dashboard(runs: Path, *more: str) -> Iterator[tuple[str, str]]:
    """The address, and what was printed before it."""
    process = subprocess.Popen(
        _arguments(runs, "--port", "0", *more),
        env=_environment(runs),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        before = ""
        for text in process.stdout:
            if found := re.search(r"http://\S+:\d+", text):
                yield found[0], before
                break
            before += text
        else:
            pytest.fail(f"no address in {before!r}")
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        assert process.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_page_is_told_of_new_lines_of_a_run(runs: Path) -> None:
    with _dashboard(runs) as (address, _):
        with httpx.stream("GET", f"{address}/api/events", timeout=20) as events:
            steps = list[int]()
            for text in events.iter_lines():
                if not text.startswith("data: {"):
                    continue
                table = json.loads(text.removeprefix("data: "))
                steps += [run["env_steps"] for run in table["runs"] if run["env_steps"]]
                if steps[-1:] == [5]:
                    with (runs / "a" / "metrics.jsonl").open("a") as file:
                        file.write('{"time_s": 2.0, "env_steps": 10}\n')
                if steps[-1:] == [10]:
                    break
        assert steps[-1] == 10
        page = httpx.get(address)
        assert page.headers["content-type"].startswith("text/html")
        for path in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
            assert httpx.get(address + path).status_code == 200


def test_the_second_dashboard_on_a_port_is_told_who_listens_there(runs: Path) -> None:
    with _dashboard(runs) as (address, _):
        port = address.rpartition(":")[2]
        second = subprocess.run(
            _arguments(runs, "--port", port),
            env=_environment(runs),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert second.returncode != 0
    assert re.search(rf"--port {port}: .*; process \d+ listens there: .*dashboard", second.stderr)


def test_off_loopback_a_token_is_printed_once_and_kept_in_a_private_file(runs: Path) -> None:
    with _dashboard(runs, "--host", "0.0.0.0") as (address, before):
        token = re.search(r"for once: (\S+)", before)
        assert token is not None
        path = runs.parent / "cache" / "aclearn" / "dashboard-token"
        assert path.read_text() == f"{token[1]}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        at = address.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{at}/api/runs").status_code == 401
        right = {"authorization": f"Bearer {token[1]}"}
        assert httpx.get(f"{at}/api/runs", headers=right).status_code == 200


def test_a_folder_that_is_not_there_is_named(runs: Path) -> None:
    found = subprocess.run(
        _arguments(runs / "nothing"),
        env=_environment(runs),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode != 0
    assert "there is no folder" in found.stderr


def _train(tmp_path: Path, *more: str) -> subprocess.Popen[str]:
    settings = ("run.max_env_steps=5000", "actors.processes=1", f"run.dir={tmp_path / 'runs'}")
    return subprocess.Popen(
        [sys.executable, "-m", "aclearn", "train", "cartpole", *settings, "--dashboard", *more],
        env=_environment(tmp_path / "runs"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _address(train: subprocess.Popen[str]) -> str:
    assert train.stdout is not None
    for text in train.stdout:
        if found := re.search(r"http://\S+:\d+", text):
            return found[0]
    raise AssertionError("no address was printed")


@pytest.mark.parametrize("more", [(), ("--seeds", "2")], ids=["one run", "two seeds"])
def test_a_training_brings_a_dashboard_that_ends_with_it(tmp_path: Path, more: Any) -> None:
    with _train(tmp_path, *more) as train:
        address = _address(train)

        def shown() -> set[str]:
            runs = httpx.get(f"{address}/api/runs").json()["runs"]
            return {run["id"] for run in runs if run["env_steps"]}

        wait_for(shown, "the dashboard shows a run")
        output, _ = train.communicate(timeout=DEADLINE_S)
    assert train.returncode == 0, output
    with pytest.raises(httpx.TransportError):
        httpx.get(address)
    assert not [line for line in output.splitlines() if "Traceback" in line]


def test_a_killed_dashboard_neither_stops_nor_slows_its_training(tmp_path: Path) -> None:
    with _train(tmp_path) as train:
        _address(train)
        children = psutil.Process(train.pid).children()
        [dashboard] = [each for each in children if "dashboard" in each.cmdline()]
        dashboard.kill()
        output, _ = train.communicate(timeout=DEADLINE_S)
    assert train.returncode == 0, output
    [summary] = (tmp_path / "runs").glob("*/summary.json")
    assert json.loads(summary.read_text())["reason"] == "max_env_steps"


def test_a_dashboard_that_cannot_start_is_said_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = tmp_path / "says"
    says.write_text("#!/bin/sh\necho aclearn: it lacks a part\nexit 64\n")
    says.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(says))
    with (
        pytest.raises(ConfigError, match=r"^--dashboard: it lacks a part$"),
        dashboard_beside(tmp_path / "runs", StopFlag()),
    ):
        pytest.fail("the block must not begin")
