"""Commands whose reader has gone, whose disk is full, or whose streams are closed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.system import CARTPOLE, System
from tests.support.waiting import DEADLINE_S


def _shell(system: System, arguments: str, redirections: str) -> tuple[int, str]:
    """Exit status of an `aclearn` command in a shell, and its output in a file `errors`."""
    command = f'"$0" -P -m services.cli {arguments} {redirections}; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        cwd=system.folder,
        env=system.environment,
    )
    errors = system.folder / "errors"
    return done.returncode, errors.read_text() if errors.exists() else ""


def test_a_run_without_output_comes_to_its_end_with_status_0(system: System) -> None:
    config = system.config(CARTPOLE, run={"max_updates": 20})
    assert _shell(system, f"train {config} run.name=closed", "<&- >&- 2>&-") == (0, "")
    status, errors = _shell(
        system, f"train {config} run.name=full run.deterministic=true", "2>errors >/dev/full"
    )
    assert status == 0, errors
    assert [line[:40] for line in errors.splitlines()] == [
        "aclearn: standard output cannot be writt"
    ]
    for name in ("closed", "full"):
        summary = (Path(system.folder) / "runs" / name / "summary.json").read_text()
        assert '"reason": "max_updates"' in summary
    for command, redirections in (
        ("top runs/full --once", "2>errors | true"),
        ("top runs/full --once", "2>errors >&-"),
        ("plot runs/full --out p.png", "2>errors >/dev/full"),
        ("--help", "2>errors >/dev/full"),
    ):
        status, errors = _shell(system, command, redirections)
        assert (status, "Traceback" in errors) == (0, False), (command, redirections, errors)


def test_a_console_that_is_not_utf_8_or_has_no_columns_changes_nothing(system: System) -> None:
    config = system.config(CARTPOLE, run={"max_updates": 5, "deterministic": True})
    for encoding in ("ascii", "iso-8859-1"):
        system.environment |= {"PYTHONIOENCODING": encoding, "COLUMNS": "0", "LINES": "0"}
        for command in (f"train {config} run.name={encoding}", f"top runs/{encoding} --once"):
            status, errors = _shell(system, command, "2>errors >out")
            assert (status, "Traceback" in errors) == (0, False), (command, errors)
    out = (Path(system.folder) / "out").read_bytes().decode("iso-8859-1")
    assert "the run is over: max_updates" in out
