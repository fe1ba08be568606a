"""A run of `aclearn train` in a temporary folder, measured from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

#: Seconds for a run from its start to its first learned step.
START_WITHIN_S = 300.0
#: Longest gap between two metrics lines; they are due every 2 s.
_LINE_WITHIN_S = 120.0
#: Seconds for a run to end after the signal.
_END_WITHIN_S = 30.0
_POLL_EVERY_S = 0.1
_RUN_NAME = "benchmark"

MetricsLine = dict[str, Any]


class WholeRun:
    """A running `aclearn train`; made by `start_run`.

    Args:
        process: the command.
        folder: the run folder, which the command makes.
        output_path: the command's output.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, output_path: Path) -> None:
        self._process, self._folder, self._output_path = process, folder, output_path
        self._size_seen = 0
        self._newest: MetricsLine | None = None

    def wait_for_line(
        self, *, at_least_s: float = 0.0, learned: bool = False, within_s: float = _LINE_WITHIN_S
    ) -> MetricsLine:
        """The newest metrics line that meets the conditions.

        Args:
            at_least_s: its least `time_s`.
            learned: some step must have been learned.
            within_s: how long to wait beyond `at_least_s` from now.

        Raises:
            RuntimeError: the run ended, or wrote no such line in time; with its last output.
        """
        newest = self._newest_line()
        already_s = newest["time_s"] if newest else 0.0
        deadline = time.monotonic() + max(0.0, at_least_s - already_s) + within_s
        while True:
            line = self._newest_line()
            if line and line["time_s"] >= at_least_s and (line["learned_steps"] > 0 or not learned):
                return line
            if self._process.poll() is not None:
                raise RuntimeError(f"the run ended early:\n{self._last_output()}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"no metrics line from {at_least_s:g} s on"
                    f"{' with learned steps' if learned else ''} within {within_s:g} s:\n"
                    f"{self._last_output()}"
                )
            time.sleep(_POLL_EVERY_S)

    def lines(self) -> list[MetricsLine]:
        """Every complete metrics line so far."""
        path = self._folder / "metrics.jsonl"
        if not path.exists():
            return []
        whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def roles(self) -> dict[str, psutil.Process]:
        """The running processes by name: actor-0, trainer-0, and the parent as "command"."""
        parent = psutil.Process(self._process.pid)
        found = {"command": parent}
        for child in parent.children(recursive=True):
            try:
                arguments = child.cmdline()
            except psutil.NoSuchProcess:
                continue
            if "--name" in arguments:
                found[arguments[arguments.index("--name") + 1]] = child
        return found

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds of each process, by name."""
        return {
            name: process.cpu_times().user + process.cpu_times().system
            for name, process in self.roles().items()
        }

    def end(self) -> None:
        """End the run as a user would, then kill the processes that are left."""
        left = list(self.roles().values()) if self._process.poll() is None else []
        self._process.terminate()
        try:
            self._process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_WITHIN_S)
        _, alive = psutil.wait_procs(left, timeout=1.0)
        for process in alive:
            process.kill()

    def _newest_line(self) -> MetricsLine | None:
        path = self._folder / "metrics.jsonl"
        # polling must cost the run nothing: most polls find no new line
        size = path.stat().st_size if path.exists() else 0
        if size != self._size_seen:
            self._size_seen = size
            lines = self.lines()
            self._newest = lines[-1] if lines else None
        return self._newest

    def _last_output(self) -> str:
        texts = [self._output_path.read_text(encoding="utf-8", errors="replace")[-2000:]]
        for log in sorted(self._folder.glob("logs/*.log")):
            text = log.read_text(encoding="utf-8", errors="replace")
            texts.append(f"--- {log.name}\n{text[-1000:]}")
        return "\n".join(texts)


@contextmanager
def start_run(config: Path, overrides: Sequence[str]) -> Iterator[WholeRun]:
    """`aclearn train CONFIG OVERRIDES…` without a target, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="aclearn-benchmark-") as directory:
        arguments = [
            *("run.target_return=null", "run.max_wall_s=null", "run.max_env_steps=null"),
            *overrides,
            *(f"run.dir={directory}", f"run.name={_RUN_NAME}"),
        ]
        output_path = Path(directory) / "output.txt"
        with output_path.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "services.cli", "train", str(config), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        run = WholeRun(process, Path(directory) / _RUN_NAME, output_path)
        try:
            yield run
        finally:
            run.end()
