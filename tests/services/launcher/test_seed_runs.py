"""Several commands as processes, some at a time; here small programs."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import psutil
import pytest

from aclearn.config import Config
from aclearn.errors import ConfigError
from aclearn.launch import StopFlag
from aclearn.views.seeds_console import SeedsConsole
from services.launcher import seed_runs
from services.launcher.seed_runs import SeedRun, SeedRuns, runs_at_once
from tests.support.waiting import wait_for

#: Marks its begin and its end by files.
_PROGRAM = """
import pathlib, signal, sys, time
folder, name, rest = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
living = sorted(p.name for p in folder.glob("*.lives"))
(folder / f"{name}.lives").touch()
(folder / f"{name}.saw").write_text(" ".join(living))
exec(rest)
(folder / f"{name}.lives").unlink()
"""


def _runs(folder: Path, *programs: str) -> list[SeedRun]:
    return [
        SeedRun(folder / name, (sys.executable, "-c", _PROGRAM, str(folder), name, rest))
        for name, rest in zip(("a", "b", "c", "d"), programs, strict=False)
    ]


def _run(runs: list[SeedRun], at_once: int, stop: StopFlag | None = None, timeout_s=8.0) -> str:
    said = io.StringIO()
    with SeedsConsole({}, [run.name for run in runs], stream=said) as console:
        SeedRuns(
            runs,
            at_once=at_once,
            stop=StopFlag() if stop is None else stop,
            console=console,
            words=lambda run: "ended well",
            stop_timeout_s=timeout_s,
        ).run()
    return said.getvalue()


@pytest.mark.parametrize("at_once", [1, 2])
def test_at_most_so_many_run_at_a_time_and_one_that_fails_leaves_the_others(
    tmp_path: Path, at_once: int
) -> None:
    short = "time.sleep(0.2)"
    fails = "print('aclearn: no such thing'); print('more'); (folder / 'b.lives').unlink(); 1 / 0"
    runs = _runs(tmp_path, short, fails, short, short)
    said = _run(runs, at_once)
    saw = [len((tmp_path / f"{run.name}.saw").read_text().split()) for run in runs]
    assert max(saw) <= at_once - 1
    assert [run.failed for run in runs] == [None, "exit status 1: no such thing", None, None]
    assert f"b: failed: exit status 1: no such thing; see {tmp_path / 'b.log'}\n" in said
    assert said.count("ended well\n") == 3
    assert "ZeroDivisionError" in (tmp_path / "b.log").read_text()


def test_a_program_that_cannot_be_started_is_a_failure_of_its_own(tmp_path: Path) -> None:
    runs = _runs(tmp_path, "pass", "pass")
    runs[0].argv = (str(tmp_path / "nowhere"),)
    _run(runs, 1)
    assert "cannot be started" in str(runs[0].failed) and runs[1].failed is None


def test_a_signal_ends_those_that_run_by_itself_and_kills_what_hangs(tmp_path: Path) -> None:
    hears = (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); print(1, flush=True);"
        "(folder / f'{name}.ready').touch(); time.sleep(600)"
    )
    deaf = hears.replace("lambda *_: sys.exit(143)", "signal.SIG_IGN")
    stop, runs = StopFlag(), _runs(tmp_path, hears, deaf, "pass")

    def end() -> None:
        wait_for(lambda: len(list(tmp_path.glob("*.ready"))) == 2, "both run")
        stop.set("SIGTERM")

    ender = threading.Thread(target=end)
    ender.start()
    said = _run(runs, 2, stop, timeout_s=0.5)
    ender.join()
    assert "a: ended by SIGTERM\n" in said and runs[0].failed is None
    assert runs[1].failed == "it did not end within 2 s"
    assert not (tmp_path / "c.log").exists()
    children = psutil.Process().children()
    assert not [child for child in children if str(tmp_path) in child.cmdline()]


def test_the_second_ctrl_c_is_passed_on(tmp_path: Path) -> None:
    counts = (
        "seen = []\nsignal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "(folder / f'{name}.ready').touch()\n"
        "while not seen: time.sleep(0.01)\n(folder / f'{name}.once').touch()\n"
        "while len(seen) < 2: time.sleep(0.01)\nsys.exit(130)"
    )
    stop, runs = StopFlag(), _runs(tmp_path, counts)

    def end() -> None:
        wait_for((tmp_path / "a.ready").exists, "it runs")
        stop.set("SIGINT")
        wait_for((tmp_path / "a.once").exists, "it has heard the first")
        stop.forced = True

    ender = threading.Thread(target=end)
    ender.start()
    said = _run(runs, 1, stop, timeout_s=60.0)
    ender.join()
    assert "a: ended by SIGINT\n" in said


def test_as_many_run_at_a_time_as_there_are_cores_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(**groups) -> Config:
        return Config(env={"id": "CartPole-v1"}, **groups)

    monkeypatch.setattr(seed_runs, "usable_cores", lambda: 8)
    three = config(actors={"processes": 2})  # and a trainer
    assert runs_at_once(three) == 2
    predicted = {"processes": 2, "inference": "predictor"}
    assert runs_at_once(config(actors=predicted, predictor={"threads": 3})) == 1
    assert runs_at_once(config(actors={"processes": 20})) == 1
    assert runs_at_once(config(run={"deterministic": True}, actors={"processes": 20})) == 8
    assert runs_at_once(three, 5) == 5
    # three workers and an actor; resident environments have no actor
    assert runs_at_once(config(actors={"processes": 1}, trainer={"workers": 3})) == 2
    assert runs_at_once(config(resident={"envs": 64, "device": "cpu"})) == 1
    assert runs_at_once(config(resident={"envs": 64, "device": "cpu", "threads": 2})) == 4
    ranks = {"envs": 64, "device": "cpu", "threads": 2, "devices": 2}
    assert runs_at_once(config(resident=ranks)) == 2
    assert runs_at_once(config(resident={"envs": 64, "device": "cuda"})) == 8


def test_runs_that_would_listen_at_one_port_run_one_at_a_time() -> None:
    config = Config(env={"id": "CartPole-v1"}, monitor={"port": 5555})
    assert runs_at_once(config) == runs_at_once(config, 1) == 1
    with pytest.raises(ConfigError, match=r"--at-once: 2 runs .* one monitor\.port, 5555; leave"):
        runs_at_once(config, 2)
