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
        wait_for(lambda: process.poll() is not None, "it has ended", within_s=10.0)
        assert process.returncode in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _get(address: str, **options: Any) -> httpx.Response:
    """The answer, for which a busy machine has time: httpx's own limit is 5 s."""
    return httpx.get(address, timeout=DEADLINE_S, **options)


def test_a_page_is_told_of_new_lines_of_a_run(runs: Path) -> None:
    with _dashboard(runs) as (address, _):
        with httpx.stream("GET", f"{address}/api/events", timeout=DEADLINE_S) as events:
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
        page = _get(address)
        assert page.headers["content-type"].startswith("text/html")
        for path in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
            assert _get(address + path).status_code == 200


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
        path = runs.parent / "cache" / "aclearn" / f"dashboard-token-{address.rpartition(':')[2]}"
        assert path.read_text() == f"{token[1]}\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        at = address.replace("0.0.0.0", "127.0.0.1")
        assert _get(f"{at}/api/runs").status_code == 401
        right = {"authorization": f"Bearer {token[1]}"}
        assert _get(f"{at}/api/runs", headers=right).status_code == 200


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


@contextmanager
def _train(tmp_path: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    settings = ("actors.processes=1", f"run.dir={tmp_path / 'runs'}")
    with subprocess.Popen(
        [sys.executable, "-m", "aclearn", "train", "cartpole", *settings, "--dashboard", *more],
        env=_environment(tmp_path / "runs"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as train:
        try:
            yield train
        finally:
            train.kill()  # without effect on one that has ended; any other may have no end


def _address(train: subprocess.Popen[str]) -> str:
    assert train.stdout is not None
    for text in train.stdout:
        if found := re.search(r"http://\S+:\d+", text):
            return found[0]
    raise AssertionError("no address was printed")


@pytest.mark.parametrize("more", [(), ("--seeds", "2")], ids=["one run", "two seeds"])
def test_a_training_brings_a_dashboard_that_ends_with_it(tmp_path: Path, more: Any) -> None:
    # Without a bound, so that the dashboard is looked at before the training is over.
    with _train(tmp_path, "run.stop_at_target=false", *more) as train:
        address = _address(train)

        def shown() -> set[str]:
            runs = _get(f"{address}/api/runs").json()["runs"]
            return {run["id"] for run in runs if run["env_steps"]}

        wait_for(shown, "the dashboard shows a run")
        train.send_signal(signal.SIGTERM)
        output, _ = train.communicate(timeout=DEADLINE_S)
    assert train.returncode == 128 + signal.SIGTERM, output
    with pytest.raises(httpx.TransportError):
        _get(address)
    assert not [line for line in output.splitlines() if "Traceback" in line]


def _dashboard_of(train: subprocess.Popen[str]) -> psutil.Process:
    for child in psutil.Process(train.pid).children():
        try:
            if "dashboard" in child.cmdline():
                return child
        except psutil.NoSuchProcess:  # another one, which has just ended
            continue
    raise AssertionError("there is no dashboard")


def test_a_killed_dashboard_neither_stops_nor_slows_its_training(tmp_path: Path) -> None:
    with _train(tmp_path, "run.max_env_steps=5000") as train:
        _address(train)
        _dashboard_of(train).kill()
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


class Page:
    """A dashboard as its page asks it."""

    def __init__(self, address: str, token: str, id: str) -> None:
        self._address, self._token, self._id = address, token, id

    def run(self) -> dict[str, Any]:
        answer = _get(f"{self._address}/api/run", params={"id": self._id})
        return answer.json() if answer.status_code == 200 else {"monitor": None}

    def names(self) -> list[str]:
        monitor = self.run()["monitor"] or {"processes": []}
        return sorted(each["name"] for each in monitor["processes"])

    def box(self, role: str) -> dict[str, Any]:
        return next((each for each in self.run()["flow"]["boxes"] if each["role"] == role), {})

    def tell(self, kind: str, **values: float) -> str:
        """The refusal; "" where the action is in force."""
        answer = httpx.post(
            f"{self._address}/api/actions",
            json={"run": self._id, "kind": kind, "values": values},
            headers={"authorization": f"Bearer {self._token}"},
            timeout=60,
        )
        return "" if answer.status_code == 200 else answer.json()["error"]


@contextmanager
def _page(runs: Path, id: str) -> Iterator[Page]:
    with _dashboard(runs, "--allow-actions") as (address, before):
        token = re.search(r"for once: (\S+)", before)
        assert token is not None
        yield Page(address, token[1], id)


def test_a_live_run_is_watched_and_told_and_keeps_what_it_was_told_when_resumed(
    tmp_path: Path,
) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    command = [sys.executable, "-m", "aclearn", "train", "cartpole", "run.name=r"]
    command += [f"run.dir={runs}", "run.metrics_every_s=0.5", "run.checkpoint_every_s=1000"]
    command += ["actors.processes=1", "run.stop_at_target=false", "run.max_wall_s=600"]
    output = (tmp_path / "output").open("w")
    train = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def newest() -> dict[str, Any]:
        text = (runs / "r" / "metrics.jsonl").read_text()
        return json.loads(text[: text.rindex("\n")].rpartition("\n")[2])

    try:
        with _page(runs, "r") as page:
            wait_for(lambda: page.names() == ["actor-0", "trainer-0"], "both roles are shown")
            assert page.box("actor")["processes"] == 1
            assert page.tell("SetActors", count=2) == ""
            wait_for(lambda: "actor-1" in page.names(), "another actor plays")
            assert page.tell("SetLearningRate", rate=1e-4) == ""
            wait_for(lambda: 0 < newest()["learning_rate"] <= 1e-4, "it learns with that rate")
            assert page.tell("SetEntropyCost", cost=0.02) == ""
            assert "compresses nothing" in page.tell("SetChain", rung=0)
            saved = {path.name for path in (runs / "r" / "checkpoints").iterdir()}
            assert page.tell("SaveCheckpoint") == ""
            wait_for(
                lambda: {path.name for path in (runs / "r" / "checkpoints").iterdir()} - saved,
                "a checkpoint is written",
            )
            processes = page.run()["monitor"]["processes"]
            [actor] = [each["pid"] for each in processes if each["name"] == "actor-0"]
            os.kill(actor, signal.SIGKILL)
            wait_for(lambda: page.box("actor")["restarts"] == 1, "its restart is shown")
            monitor = page.run()["monitor"]
            assert {"SetActors": 2, "SetLearningRate": 1e-4}.items() <= monitor["now"].items()
            assert "the user's action: SetActors count 2" in monitor["events"]
        steps = newest()["env_steps"]
        wait_for(lambda: newest()["env_steps"] > steps, "the run goes on without a dashboard")
        with _page(runs, "r") as page:
            wait_for(page.names, "the monitor answers the second dashboard")
            assert page.tell("StopRun") == ""
            assert train.wait(DEADLINE_S) == 0, (tmp_path / "output").read_text()
            wait_for(lambda: page.run()["monitor"] is None, "the run is over")
            assert "the run is not running" in page.tell("SaveCheckpoint")
            tables = {table["title"]: table["rows"] for table in page.run()["decisions"]}
        told = ["SetActors", "SetLearningRate", "SetEntropyCost", "SaveCheckpoint", "StopRun"]
        assert [row[1] for row in tables["Actions of users"]] == told[::-1]
        summary = json.loads((runs / "r" / "summary.json").read_text())
        assert summary["reason"] == "stopped by a user in the dashboard"
        assert not (runs / "r" / "monitor.json").exists()
        bound = f"run.max_env_steps={summary['env_steps'] + 20_000}"
        done = subprocess.run([*command, "--resume", bound], stdout=output, timeout=DEADLINE_S)
        assert done.returncode == 0, (tmp_path / "output").read_text()
        assert newest()["learning_rate"] <= 1e-4
    finally:
        train.kill()
        train.wait()
        output.close()
