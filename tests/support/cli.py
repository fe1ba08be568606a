"""The command line in this process."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from services.cli import app


def aclearn(*arguments: str | Path) -> str:
    """Run a command; returns its output on both streams, and raises its errors."""
    done = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output
