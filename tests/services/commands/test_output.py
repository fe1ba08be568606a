"""A process whose standard output or errors are lost, or were closed from the start."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from aclearn.views import PlainConsole
from services.commands.output import lossy_stdout
from tests.support.waiting import DEADLINE_S

_SOURCE = """
import logging, os, sys
from services.commands.output import make_output_lossy
make_output_lossy()
opened = os.open(os.devnull, os.O_WRONLY)  # must not get the number of a closed stream
for _ in range(3):
    print("x" * 10_000)
    sys.stdout.flush()
    print("told", file=sys.stderr)
logging.error("logged")
child = os.system("cat <&0 && echo child && echo child >&2")
print("buffered when the interpreter ends")
sys.exit(7 if opened > 2 and child in (0, 256) else 1)
"""


@pytest.mark.parametrize(
    ("redirections", "told"),
    [
        ("2>errors | true", "told"),
        ("2>errors >/dev/full", "standard output cannot be written (No space left on device)"),
        ("2>errors >&-", "told"),
        ("2>/dev/full >/dev/null", ""),
        ("2>/dev/full >/dev/full", ""),
        ("<&- >&- 2>&-", ""),
    ],
)
def test_a_process_goes_on_without_its_output(redirections: str, told: str, tmp_path: Path) -> None:
    command = f'"$0" -c "$1" {redirections}; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, _SOURCE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (7, "")
    errors = tmp_path / "errors"
    words = errors.read_text() if errors.exists() else ""
    assert told in words
    assert "Traceback" not in words and words.count("cannot be written") <= 1


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "utf-8"])
def test_characters_that_the_console_lacks_are_replaced(encoding: str) -> None:
    text, expected = "→ ä", {"ascii": "? ?", "iso-8859-1": "? ä", "utf-8": "→ ä"}[encoding]
    long = "x" * 100_000
    load = "from services.commands.output import lossy_stdout, make_output_lossy"
    for source in ("make_output_lossy()", "kept = lossy_stdout(); kept.__enter__()"):
        done = subprocess.run(
            [sys.executable, "-c", f"{load}\n{source}\nprint({text!r})\nprint({long!r}, end='')"],
            capture_output=True,
            timeout=DEADLINE_S,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode(encoding) == f"{expected}\n{long}"


class _Broken(io.StringIO):
    """A console that fails at every call."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise BrokenPipeError

    def isatty(self) -> bool:
        raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize("stream", [None, _Broken()])
def test_a_program_goes_on_whose_standard_output_is_lost(stream, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdout", stream)
    with lossy_stdout():
        print("lost", flush=True)
        assert not sys.stdout.isatty()
        with PlainConsole({}, name="r", stream=sys.stdout) as console:
            console.note("an event →")
    assert sys.stdout is stream
