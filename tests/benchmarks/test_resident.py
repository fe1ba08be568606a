"""benchmarks/resident.py takes the environments that it is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("aclearn.resident")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import resident
import resident_learning


def test_each_sized_part_is_measured_with_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident_learning, "_QUEUED", ())
    monkeypatch.setattr(resident, "ROWS", [])
    resident.main(["policy", "sampler", "learning", "--envs", "40", "70", "--seconds", "0.01"])
    measured = [(row["what"], row["envs"]) for row in resident.ROWS if "gymnasium" not in row["by"]]
    assert measured == [
        *[("policy", 40)] * 2,
        *[("policy", 70)] * 2,
        *[("sampler", 40)] * 2,
        *[("sampler", 70)] * 2,
        ("learning", 40),
        ("learning", 70),
    ]
    assert all(row["steps_per_s"] > 0 for row in resident.ROWS)


def test_training_is_measured_for_each_published_algorithm_and_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resident, "COUNTS", (4, 6))
    monkeypatch.setattr(resident, "ROWS", [])
    resident.main(["training", "--seconds", "0.01", "--threads", "1"])
    by = [(row["env"], row["by"], row["envs"]) for row in resident.ROWS]
    assert by == [(env, name, n) for env, name in resident.PUBLISHED.items() for n in (4, 6)]
    assert all(row["steps_per_s"] > 0 for row in resident.ROWS)
