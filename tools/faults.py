"""One-line faults that the tests must find: what a smaller suite still protects.

    python -m tools.faults [--only WORD]     # in a clean checkout, which it changes and restores

Each fault of `faults.yaml` is put into the packages alone; then the tests that should find it run
up to the first failure. A fault whose line is gone is reported: the list follows the code.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

PACKAGES = ("correctors", "aclearn", "compress", "services")
#: Seconds for the tests of one fault; a fault that makes them hang is found.
WITHIN_S = 300.0


@dataclass(frozen=True)
class Fault:
    """A change of one line, and names of files or folders with tests that should find it."""

    what: str
    line: str
    instead: str
    tests: str


FAULTS = [
    Fault(**each)
    for each in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
]


def file_of(fault: Fault) -> tuple[Path, str] | None:
    """The only file of the packages with the fault's line, and its text; None without one."""
    found = [
        (path, text)
        for package in PACKAGES
        for path in Path(package).rglob("*.py")
        if (text := path.read_text(encoding="utf-8")).count(fault.line)
    ]
    if len(found) != 1 or found[0][1].count(fault.line) != 1:
        return None
    return found[0]


def tried(fault: Fault) -> tuple[str, float]:
    """What the tests said: found, MISSED or gone; and the seconds that they took."""
    there = file_of(fault)
    if there is None:
        return "gone", 0.0
    path, text = there
    tests = [test for test in fault.tests.split() if Path(test).exists()]
    begun = time.monotonic()
    try:
        path.write_text(text.replace(fault.line, fault.instead), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(command, capture_output=True, timeout=WITHIN_S, check=False)
        verdict = "found" if done.returncode == 1 else "MISSED" if done.returncode == 0 else "error"
    except subprocess.TimeoutExpired:
        verdict = "found (hangs)"
    finally:
        path.write_text(text, encoding="utf-8")
    return verdict, time.monotonic() - begun


def results(faults: Sequence[Fault]) -> Iterator[str]:
    """A line for each fault."""
    for fault in faults:
        verdict, took_s = tried(fault)
        yield f"{verdict}\t{took_s:.0f} s\t{fault.what}"


def main() -> int:
    """Try the faults; the exit status says whether one was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="faults with this word")
    options = parser.parse_args()
    missed = 0
    for line in results([fault for fault in FAULTS if options.only in fault.what]):
        print(line, flush=True)
        missed += not line.startswith("found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
