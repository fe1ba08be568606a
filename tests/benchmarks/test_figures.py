"""The arithmetic of benchmarks between measurements and output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import resident_curves
import round_trip
import throughput
import training_curves
import training_time
import tuner
from parts import Cost


def _decision(at_s: float, counts: int, kept: int, rate: float | None, window_s: float) -> dict:
    return {
        "time_s": at_s,
        "counts": {"predictors": 1, "trainers": counts},
        "kept": {"predictors": 1, "trainers": kept},
        "rate": rate,
        "window_s": window_s,
    }


def test_what_exploring_costs_is_what_other_counts_learned_less() -> None:
    lines = [
        _decision(5.0, 1, 1, 10.0, 5.0),  # before the measured time
        _decision(20.0, 2, 2, 100.0, 10.0),
        _decision(25.0, 3, 2, 40.0, 5.0),
        _decision(26.0, 3, 2, None, 0.0),
        _decision(40.0, 2, 2, 120.0, 10.0),
    ]
    # at home 110 a second; 25 s would be 2750, and were 1000 + 200 + 1200
    assert tuner.lost_to_exploring(lines, 10.0) == pytest.approx(1 - 2400 / 2750)
    assert tuner.lost_to_exploring(lines[2:4], 10.0) is None


def _costs(device: str) -> dict[str, Cost]:
    return {
        "emulator": Cost(0.0003, 0.0003, {}),
        "inference": Cost(0.0001, 0.0002, {}),
        "training": Cost(0.0004, 0.0005, {"device": device}),
    }


def test_the_limit_is_what_the_cores_or_the_gpu_could_do() -> None:
    # two cores, 0.4 ms to act and twice 0.4 ms to learn
    limit = throughput.limit_steps_per_s(_costs("cpu"), epochs=2, cores=2)
    assert limit == pytest.approx(2 / 0.0012)
    # a GPU learns beside them: twice 0.5 ms on its clock, against 0.4 ms on two cores
    limit = throughput.limit_steps_per_s(_costs("cuda"), epochs=2, cores=2)
    assert limit == pytest.approx(1000.0)
    limit = throughput.limit_steps_per_s(_costs("cuda"), epochs=1, cores=1)
    assert limit == pytest.approx(2000.0)


def test_a_run_s_figures_are_differences_between_its_lines() -> None:
    def line(at_s: float, learned: int, produced: int, dropped: int, lag: float) -> dict:
        return {
            "time_s": at_s,
            "learned_steps": learned,
            "env_steps": produced,
            "dropped_steps": {"lag": dropped},
            "lag_mean": lag,
            "wait_share": {"trainer": {"unrolls": lag / 10, "working": 1 - lag / 10}},
        }

    first, lines = (
        line(10.0, 1000, 1100, 0, 9.0),
        [
            line(20.0, 3000, 3200, 50, 1.0),
            line(30.0, 5000, 5200, 100, 3.0),
        ],
    )
    cores = throughput.usable_cores()
    found = throughput.run_figures(first, lines, {"trainer-0": 5.0}, {"trainer-0": 13.0})
    assert found["learned_steps_per_s"] == pytest.approx(200.0)
    assert found["cpu_share"] == pytest.approx(8.0 / 20.0 / cores)
    assert found["cpu_ms_per_learned_step"] == {"trainer-0": pytest.approx(2.0)}
    assert found["wait_share"] == {"trainer": pytest.approx({"unrolls": 0.2, "working": 0.8})}
    assert found["lag_mean"] == pytest.approx(2.0)
    assert found["dropped_share"] == pytest.approx(100 / 4100)
    with pytest.raises(RuntimeError, match="no steady state"):
        throughput.run_figures(first, lines, {"trainer-0": 5.0}, {"trainer-0": 6.0, "x": 0.0})


def test_curves_are_compared_at_equal_steps_up_to_where_the_first_ends() -> None:
    points = [
        ("eager", "1", 90, 1.0),
        ("eager", "1", 210, 4.0),
        ("eager", "2", 100, 3.0),
        ("eager", "2", 300, 8.0),
        ("int8", "1", 150, 2.0),
        ("int8", "1", 260, 5.0),
    ]
    rows = [
        {"variant": v, "seed": s, "learned_steps": str(n), "return": str(r)}
        for v, s, n, r in points
    ]
    assert list(training_curves.at_equal_steps(rows, 100)) == [
        ["steps", "eager", "int8"],
        ["0.1 k", "2.0 (1.0 to 3.0)", ""],
        ["0.2 k", "2.0 (1.0 to 3.0)", "2.0"],
    ]


def test_waits_are_told_by_their_percentiles() -> None:
    found = round_trip.figures(np.arange(1, 102) / 1000, seconds=2.0)
    assert found["p50_ms"] == pytest.approx(51.0)
    assert found["p99_ms"] == pytest.approx(100.0)
    assert found["mean_ms"] == pytest.approx(51.0)
    assert found["max_ms"] == pytest.approx(101.0)
    assert (found["requests"], found["requests_per_s"]) == (101, 50.5)


def test_a_training_s_figures_are_of_its_learned_lines(tmp_path: Path) -> None:
    summary = {
        "reached_target_at_s": 40.0,
        "learned_steps": 4000,
        "return_mean_100": 20.5,
        "dropped_steps": {},
    }
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    lines = [
        {"time_s": 1.0, "learned_steps": 0, "lag_mean": 0.0, "return_mean_100": None},
        {"time_s": 20.0, "learned_steps": 1000, "lag_mean": 2.0, "return_mean_100": 3.0},
        {"time_s": 40.0, "learned_steps": 4000, "lag_mean": 4.0, "return_mean_100": 20.5},
    ]
    for line, kl in zip(lines, (None, 0.002, None), strict=True):
        line |= {"compressor_kl_mean": kl} if kl is not None else {}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    found = training_time.figures(tmp_path)
    assert (found["reached_at_s"], found["steps"], found["return"]) == (40.0, 4000, 20.5)
    assert (found["steps_per_s"], found["lag_mean"], found["kl_mean"]) == (100.0, 3.0, 0.002)
    assert training_time.return_at(tmp_path, 3999) == 3.0
    assert training_time.return_at(tmp_path, 999) is None


def test_trainings_by_number_of_environments_go_on_seed_by_seed_where_they_were_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    def learned(figure: Any, envs: int, n_step: int, seed: int, **_: Any) -> Iterator[list[Any]]:
        trained.append((seed, n_step, envs))
        yield [2, 4, 100 * envs * seed, "0.50", ""]
        if (seed, n_step, envs) == (2, 5, 10) and len(trained) == 7:
            raise KeyboardInterrupt  # its first row leaves no trace
        yield [4, 8, 200 * envs * seed, "1.00", -10 * seed]
        yield [6, 12, 300 * envs * seed, "1.50", -20 * seed]

    monkeypatch.setattr(resident_curves, "learned", learned)
    begin = ["figure-4", "--out", str(tmp_path), "--envs", "10", "1000"]
    with pytest.raises(KeyboardInterrupt):
        resident_curves.main([*begin, "--seeds", "1", "2", "3"])
    with pytest.raises(SystemExit, match="--resume"):
        resident_curves.main([*begin, "--seeds", "1"])
    resident_curves.main([*begin, "--seeds", "1", "2", "--resume"])
    one_seed = [(1, 10), (1, 1000), (5, 10), (5, 1000)]
    design = [(seed, *each) for seed in (1, 2) for each in one_seed]
    assert trained == [*design[:7], *design[6:]]

    found = resident_curves.curves(resident_curves.read(tmp_path / "figure-4.csv"))
    assert list(found) == [("1", 10), ("1", 1000), ("5", 10), ("5", 1000)]
    curve = found["5", 10]
    np.testing.assert_array_equal(curve.steps, [1500, 3000, 4500])
    np.testing.assert_array_equal(curve.returns, [[np.nan, -10, -20], [np.nan, -20, -40]])
    assert curve.last() == pytest.approx((-30, 200**0.5))
    assert np.isnan(resident_curves.Curve(curve.steps, curve.returns[:1]).last()[1])
