"""The arithmetic of `benchmarks/scale.py` between what herds counted and the table."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import scale
from synthetic_actors import Traffic

from aclearn.config import Config

_IDLE = {"main": 0.1, "io": 0.2, "all": 0.4}


def _row(does: tuple[bool, bool], sockets_s: float, io_s: float, **counts: int) -> dict:
    traffics = [Traffic(), Traffic()]
    for name, count in counts.items():  # of both processes
        traffics[0].counts[name], traffics[1].counts[name] = count // 4, count - count // 4
    traffics[0].waits["heartbeat"], traffics[1].waits["heartbeat"] = [0.001] * 49, [0.003] * 51
    spent = {
        "monitor": {"main": 1.5, "io": 0.5, "all": 2.0},
        "trainer": {"main": sockets_s, "io": io_s, "all": 9.0},
    }
    about = {"actors": 1000, "pulls": does[0], "unrolls": does[1], "joined_s": 2.5}
    return scale.row_of(traffics, spent, 10.0, about) | {"line_us": 20.0}


@pytest.fixture
def rows() -> list[dict]:
    beats = {"heartbeats": 10_000, "monitor_bytes": 10_000_000}
    return [
        _row((True, True), 2.0, 1.2, **beats, pulls=20_000, unrolls=5000, trainer_bytes=10**9),
        _row((False, False), 0.1, 0.2, **beats),
        _row((True, False), 1.1, 0.6, **beats, pulls=20_000),
        _row((False, True), 0.6, 0.45, **beats, unrolls=5000),
    ]


def test_a_row_has_rates_of_all_herds_shares_of_a_core_and_percentiles(rows) -> None:
    row = rows[0]
    assert row["does"] == "heartbeats+pulls+unrolls"
    assert (row["heartbeats_per_s"], row["pulls_per_s"], row["unrolls_per_s"]) == (1000, 2000, 500)
    assert (row["monitor_cpu"], row["monitor_thread_cpu"]) == pytest.approx((0.2, 0.15))
    assert (row["sockets_cpu"], row["trainer_io_cpu"]) == pytest.approx((0.2, 0.12))
    assert (row["heartbeat_p50_ms"], row["heartbeat_p99_ms"]) == pytest.approx((3.0, 3.0))
    assert row["pull_p99_ms"] is None and row["joined_s"] == 2.5


def test_the_cost_of_a_message_is_what_it_adds_to_heartbeats_alone(rows) -> None:
    assert scale.costs(rows) == pytest.approx(
        {
            **{"heartbeat": 200.0, "pull": 50.0, "pull_io": 20.0, "unroll": 100.0},
            **{"unroll_io": 50.0, "line": 20.0},
        }
    )


def test_the_model_says_what_actors_cost_at_the_intervals_that_they_are_told(rows) -> None:
    cost, config = scale.costs(rows), Config.model_validate({"env": {"id": "CartPole-v1"}})
    few, many = (scale.expected(n, cost, config) for n in (100, 10_000))
    assert (few["heartbeat_every_s"], few["pull_every_s"]) == (0.5, 0.05)
    # 200 heartbeats of 200 µs, and half a line of 100 times 20 µs; 2000 pulls and 50 unrolls
    assert few["monitor_cpu"] == pytest.approx(0.04 + 0.001)
    assert few["sockets_cpu"] == pytest.approx(0.1 + 0.005)
    assert (many["heartbeat_every_s"], many["pull_every_s"]) == (15.0, 5.0)
    assert many["monitor_cpu"] == pytest.approx(2 / 15 + 0.1)
    assert many["sockets_cpu"] == pytest.approx(0.1 + 0.5)
    assert scale.expected(100_000, cost, config)["heartbeat_every_s"] == 15.0


def test_a_written_file_gives_the_same_table(rows, tmp_path) -> None:
    path = tmp_path / "scale.csv"
    scale.write_rows(path, rows)
    with path.open(newline="") as file:
        assert len(list(csv.reader(file))) == 5
    text = scale.table(scale.read_rows(path))
    assert text == scale.table(rows)
    lines = text.splitlines()
    assert lines[2] == (
        "| 1000 | 1000 | 2000 | 500 | 20.0 % | 20.0 % | 12.0 % | 101.0 | 3.0, 3.0 | – |"
    )
    assert lines[3].startswith("| heartbeats | 1000 | 0 | 0 |")
    assert "| a heartbeat, in the monitor | 200 |" in lines
    assert "| 10000 | 15 s | 23 % | 5 s | 60 % |" in lines
    page = tmp_path / "page.md"
    page.write_text(f"# A\n\n{scale._BEGIN}\nold\n{scale._END}\n\nlast\n")
    for _ in range(2):
        scale.fill(page, text)
        assert page.read_text() == f"# A\n\n{scale._BEGIN}\n\n{text}\n\n{scale._END}\n\nlast\n"


def test_the_cpu_of_a_process_is_that_of_its_threads_since_the_last_look() -> None:
    import os
    import threading

    cpu = scale.Cpu(os.getpid(), {"main": threading.main_thread().native_id})
    cpu.look()
    sum(range(3_000_000))
    spent = cpu.look()
    assert spent["all"] >= spent["main"] > 0.005 and spent["io"] >= 0.0
