"""benchmarks/many_agents.py prints rates of both implementations of a game."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import pytest

pytest.importorskip("aclearn.resident")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import many_agents


def test_a_row_has_the_game_its_size_and_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_agents, "ROWS", [])
    args = Namespace(device="cpu", threads=1, seconds=0.01)
    many_agents.resident_rate("tag_continuous", 5, 2, 30, args)
    many_agents.policy_rate("tag_continuous", 5, 2, 30, args)
    many_agents.numpy_rate(5, 2, 30, args.seconds)
    many_agents.parallel_rate(5, None, args.seconds)
    grid = many_agents.ROWS.pop()
    assert grid["env"] == "tag_gridworld" and grid["observes"] == "all" and grid["steps_per_s"] > 0
    game = {"env": "tag_continuous", "agents": 5, "observes": 2, "envs": 30, "threads": 1}
    for what, row in zip(("resident", "policy", "numpy"), many_agents.ROWS, strict=True):
        assert row.items() >= {**game, "what": what}.items()
        assert set(row) == set(many_agents.COLUMNS)
        assert row["agent_steps_per_s"] == 5 * row["steps_per_s"] > 0
