from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("warp")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import trading


def test_each_way_to_step_has_a_rate() -> None:
    found = trading.rows([2], 0.01, None)
    assert [(row["what"], row["envs"]) for row in found] == [
        ("batched", 1), ("batched", 2), ("resident", 2), ("gymnasium.vector.SyncVectorEnv", 2),
    ]  # fmt: skip
    assert all(row["steps_per_s"] > 0 for row in found)
