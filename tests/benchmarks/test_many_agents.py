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


def test_the_table_has_a_column_for_each_game_and_way_to_play(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text(
        "what,env,agents,observes,envs,threads,steps_per_s,agent_steps_per_s,steps_per_cpu_s\n"
        "resident,tag_gridworld,5,all,10,2,480000,0,0\n"
        "policy,tag_gridworld,5,all,100,2,7000,0,0\n"
        "numpy,tag_continuous,1000,10,1,1,12,0,0\n"
    )
    assert list(many_agents.table_lines(file)) == [
        "| agents | environments | resident: gridworld, observes all "
        "| policy: gridworld, observes all |",
        "|---|---|---|---|",
        "| 5 | 10 | 480 000 |  |",
        "| 5 | 100 |  | 7 000 |",
        "",
        "| agents | environments | numpy: continuous, observes 10 |",
        "|---|---|---|",
        "| 1000 | 1 | 12 |",
        "",
    ]
