from __future__ import annotations

import subprocess
import sys
import time

import pytest

from aclearn.telemetry.cores import CpuReading, FreeCores, read_cpu, usable_cores
from tests.support.waiting import DEADLINE_S


def _free(*readings: tuple[float, CpuReading], window_s: float = 10.0) -> list[float | None]:
    """The free cores at each of the readings, one a second."""
    times, states = (iter(values) for values in zip(*readings, strict=True))
    cores = FreeCores(window_s, read=lambda: next(states), clock=lambda: next(times))
    return [cores.look() for _ in readings]


def test_idle_seconds_are_free_cores_over_the_window() -> None:
    found = _free(
        (0.0, CpuReading(100.0)),
        (5.0, CpuReading(115.0)),
        (10.0, CpuReading(115.0)),
        (20.0, CpuReading(125.0)),
    )
    assert found == [None, 3.0, 1.5, 1.0]


def test_a_container_has_no_more_free_than_its_limit_leaves() -> None:
    def at(used_s: float) -> CpuReading:
        return CpuReading(10.0 * used_s, limit=2.0, used_s=used_s)

    assert _free((0.0, at(0.0)), (2.0, at(1.0)), (4.0, at(20.0))) == [None, 1.5, 0.0]


def test_this_machine_s_busy_cores_are_not_free() -> None:
    first = read_cpu()
    cores = FreeCores()
    assert cores.look() is None
    burn = f"import time\nwhile time.monotonic() < {time.monotonic() + 1.0}: pass"
    burning = [subprocess.Popen([sys.executable, "-c", burn]) for _ in range(usable_cores())]
    assert [process.wait(timeout=DEADLINE_S) for process in burning] == [0] * usable_cores()
    free = cores.look()
    assert free is not None and 0.0 <= free < usable_cores()
    assert read_cpu().idle_s >= first.idle_s


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "150000 100000"}, 2),
        ({"a/cpu.max": "50000 100000", "cpu.max": "300000 100000"}, 1),
        ({"a/cpu.max": "max 100000", "cpu.max": "300000 100000"}, 3),
    ],
)
def test_the_tightest_limit_of_the_control_groups_counts(
    files: dict[str, str], cores: int, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aclearn.telemetry import cores as module

    (tmp_path / "a").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
        (tmp_path / name).with_name("cpu.stat").write_text("usage_usec 2500000\nuser_usec 7\n")
    monkeypatch.setattr(module, "_CGROUPS", tmp_path)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(module, "_own_group", lambda: "/a")
    assert usable_cores() == cores
    limit = read_cpu()
    assert (limit.limit is None) == (cores == 64)
    assert limit.used_s in (0.0, 2.5)
