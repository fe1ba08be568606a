"""What `--env` chooses learns what a newcomer tries first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import sanity


@pytest.mark.parametrize(
    ("name", "target"),
    # by chance 8 of 32; rewards of 0.001, by chance 0.007
    [("small_image", 16.0), ("line_small", 0.02)],
)
def test_small_images_and_small_rewards_are_learned(
    tmp_path: Path, name: str, target: float
) -> None:
    row = sanity.run(name, 1, tmp_path, [f"run.target_return={target}", "run.max_env_steps=30_000"])

    assert row["solved_steps"] != ""
