"""Commands whose reader has gone, whose disk is full, or whose streams are closed."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
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


def _on_terminal(system: System, *arguments: str, rows: int, columns: int) -> str:
    """What an `aclearn` command writes to a terminal of this size; it ends with status 0."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    command = [sys.executable, "-P", "-m", "services.cli", *arguments]
    environment = system.environment | {"TERM": "xterm"}
    started = subprocess.Popen(
        command, stdin=end, stdout=end, stderr=end, cwd=system.folder, env=environment
    )
    os.close(end)
    written = b""
    try:
        while piece := os.read(terminal, 65536):
            written += piece
    except OSError:  # every process that had the terminal has ended
        pass
    finally:
        os.close(terminal)
    text = written.decode()
    assert started.wait(DEADLINE_S) == 0 and "Traceback" not in text, text
    return text


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
        ("plot runs/full --out p.png", "2>errors >/dev/full"),
        ("--help", "2>errors >/dev/full"),
    ):
        status, errors = _shell(system, command, redirections)
        assert (status, "Traceback" in errors) == (0, False), (command, redirections, errors)


def test_a_terminal_of_no_size_shows_all_views(system: System) -> None:
    config = system.config(CARTPOLE, run={"max_updates": 20})
    del system.environment["COLUMNS"]
    commands: list[tuple[list[str], list[str]]] = [
        (["train", str(config)], ["╭", "ended: max_updates"]),
        (["top", "runs/r"], ["╭", "the run is over"]),
        (["runs"], ["r", "max_updates"]),
        (["--help"], ["check-env"]),
    ]
    zero = {"COLUMNS": "0", "LINES": "0"}
    for rows, columns, exported, shown in ((0, 0, {}, commands), (24, 80, zero, commands[1:3])):
        system.environment |= exported
        for arguments, words in shown:
            text = _on_terminal(system, *arguments, rows=rows, columns=columns)
            assert all(word in text for word in words), (rows, arguments, text)
