"""The steps of WarpDrive's two listings in our API, as a user runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("aclearn.resident")
from aclearn.resident import make
from examples.warpdrive_figure_6 import AGENTS, CHASE
from tests.support.waiting import run_python

_EXAMPLES = Path(__file__).parents[2] / "examples"


def test_figure_6_steps_an_environment_of_its_own_and_writes_its_arrays() -> None:
    done = run_python("-W", "error", _EXAMPLES / "warpdrive_figure_6.py")
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(
        r"(\d+) episodes of agents; mean cell (\d+\.\d); (\d+)% are in the game\n", done.stdout
    )
    assert found
    # 200 steps of 2000 environments with 5 agents, whose episodes have at most 50 steps
    assert int(found[1]) > 3 * 2000 * len(AGENTS)
    assert 8 < float(found[2]) < 15


def test_an_array_that_is_written_moves_the_agents_and_a_tag_counts() -> None:
    envs = make(CHASE, envs=3, device="cpu", tag_reward=10.0)
    first = envs.reset().clone()
    envs.data["loc_x"][1] = torch.tensor([7, 0, 7, 7, 1])
    step = envs.step(torch.ones(3, len(AGENTS), dtype=torch.int64))
    assert step.rewards.tolist() == [[0.0] * 5, [20.0, 0.0, -10.0, -10.0, 0.0], [0.0] * 5]
    assert step.in_game[1].tolist() == [True, True, False, False, True]
    assert torch.equal(step.observations[0], first[0])
    envs.close()


def test_figure_7_trains_two_policies(tmp_path: Path) -> None:
    done = run_python("-W", "error", _EXAMPLES / "warpdrive_figure_7.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    actions = re.findall(r"^(tagger|runner): action ([012]) where", done.stdout, re.MULTILINE)
    assert [tag for tag, _ in actions] == ["tagger", "runner"]
    (run,) = (tmp_path / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text("utf-8"))
    assert summary["env_steps"] >= 500_000
