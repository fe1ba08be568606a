"""A dashboard of many long runs: how soon it opens from its index, and how much memory it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from services.dashboard.run_series import MOST_POINTS, RunSeries

_RUNS, _LINES = 50, 20_000
_MOST_BYTES = 300_000_000
#: Of the processor; on a busy machine the clock says more.
_OPENS_WITHIN_S = 2.0
_DEADLINE_S = 240


def _write(path: Path, lines: int) -> Path:
    path.parent.mkdir(parents=True)
    text = b'{"time_s":%d,"env_steps":%d,"learned_steps":%d,"return_mean_100":1.5}\n'
    path.write_bytes(b"".join(text % (i, 10 * i, 9 * i) for i in range(lines)))
    return path


@contextmanager
def _dashboard(runs: Path) -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "aclearn", "dashboard", str(runs), "--port", "0"]
    environment = {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(runs.parent / "cache")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://\S+", process.stdout.readline())
            assert address is not None
            yield address[0], psutil.Process(process.pid)
        finally:
            process.terminate()


def _whole_table(address: str) -> list[dict[str, Any]]:
    """The table of runs, once all of them are read."""
    deadline = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline:
        runs = httpx.get(f"{address}api/runs", timeout=60).json()["runs"]
        if len(runs) == _RUNS and all(run["whole"] for run in runs):
            return list(runs)
        time.sleep(0.05)
    raise AssertionError(f"after {_DEADLINE_S} s not every run is read")


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _most_bytes(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return 1024 * int(found[1])


def test_fifty_long_runs_open_soon_from_the_index_and_in_little_memory(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    first = _write(runs / "run-0" / "metrics.jsonl", _LINES)
    for n in range(1, _RUNS):
        (runs / f"run-{n}").mkdir()
        shutil.copyfile(first, runs / f"run-{n}" / "metrics.jsonl")
    with _dashboard(runs) as (address, process):
        # the table is there before the runs are read
        assert httpx.get(f"{address}api/runs", timeout=60).status_code == 200
        assert {run["lines"] for run in _whole_table(address)} == {_LINES}
        assert _most_bytes(process) < _MOST_BYTES
    with _dashboard(runs) as (address, process):
        before = _cpu_s(process)
        assert {run["lines"] for run in _whole_table(address)} == {_LINES}
        query = {"run": [f"run-{n}" for n in range(_RUNS)], "axis": "time_s"}
        assert len(httpx.get(f"{address}api/compare", params=query, timeout=60).json()["lines"])
        assert _cpu_s(process) - before < _OPENS_WITHIN_S
        assert _most_bytes(process) < _MOST_BYTES


def test_a_run_of_a_million_lines_is_read_in_pieces_into_few_points(tmp_path: Path) -> None:
    series = RunSeries(_write(tmp_path / "a" / "metrics.jsonl", 1_000_000).parent)
    reads = 1
    while series.read_on():
        reads += 1
    assert reads > 10
    assert (series.lines, series.newest["time_s"]) == (1_000_000, 999_999)
    times = series.columns(["time_s"])["time_s"].tolist()
    assert times == [*range(0, 1_000_000, 1024), 999_999]
    assert len(times) <= MOST_POINTS
