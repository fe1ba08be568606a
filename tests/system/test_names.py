"""A run whose name looks like a number, from its start to the pictures of it."""

from __future__ import annotations

from pathlib import Path

from tests.support.system import CARTPOLE, System


def test_a_run_called_42_is_trained_resumed_played_and_drawn(
    system: System, tmp_path: Path
) -> None:
    config = system.config(
        CARTPOLE, run={"name": 42, "deterministic": True, "max_env_steps": 2_000}
    )
    runs = system.folder / "runs"
    commands = [
        ["train", str(config)],
        ["train", str(config), "--resume", "run.name=42", "run.max_env_steps=4000"],
        ["evaluate", str(runs / "42"), "--episodes", "1"],
        ["plot", str(runs / "42"), "--out", str(tmp_path / "42.png")],
    ]
    for arguments in commands:
        command = system.command(*arguments)
        assert command.wait() == 0, command.output
    assert (tmp_path / "42.png").exists()
    drawn = system.command("plot", str(runs / "42"), "--tuner", "--out", str(tmp_path / "t.png"))
    assert drawn.wait() != 0
    assert "the tuner of this run was off" in drawn.output and "Traceback" not in drawn.output
    assert [path.name for path in runs.iterdir()] == ["42"]
