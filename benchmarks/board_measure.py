"""One training of the board, measured: CPU seconds of all its processes until its target.

    python board_measure.py --target 475 --limit-s 600 --episodes FILE [--frames 4] -- COMMAND ...
    python board_measure.py --target 475 --limit-s 600 --metrics FILE -- COMMAND ...

Judges every tenth of a second: by the episodes that `board_episodes.py` records, or by the metrics
lines of aclearn. Once the mean return of 100 episodes is at the target, or the limit is over, every
process is killed. Prints a JSON line, a `Measured`. Needs Linux; imports only Python's own modules.

**The mean.** The newest 100 episodes by when they began, of which all that began before have ended.
By when they end, the short ones would come first where many environments play at once.

**CPU seconds.** Of the command and of all processes below it, from its start to the target. Orphans
become children of this process. At the end every process is stopped; the sum is what each has used,
and what the kernel has added to its parent for each that had ended. Processes whose parent ignores
their ends are missing once they have ended.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import heapq
import json
import math
import os
import resource
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Protocol

EPISODES: Final = 100
_RECORD: Final = struct.Struct("<qqqdd")  # as board_episodes.RECORD, which imports gymnasium
_JUDGE_EVERY_S: Final = 0.1
_KILLED_WITHIN_S: Final = 30.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_SET_CHILD_SUBREAPER: Final = 36  # of <linux/prctl.h>


@dataclass(frozen=True)
class Measured:
    """A training, from its start to its end.

    Attributes:
        ended: "reached", "limit", "over" (the command ended) or "failed" (its status was not 0).
        steps: agent steps; those of the episode records do not have what ran on beside the last.
        mean: newest mean return of 100 episodes; None before there are as many.
        core_s: CPU seconds of all processes.
        others: share of the machine's cores that other programs used meanwhile.
    """

    ended: str
    steps: int
    mean: float | None
    core_s: float
    wall_s: float
    others: float


class Judge(Protocol):
    """Reads a training's returns as they come."""

    @property
    def steps(self) -> int:
        """Agent steps so far."""
        ...

    @property
    def mean(self) -> float | None:
        """Newest mean return of 100 episodes; None before there are as many."""
        ...

    def reached(self, target: float) -> bool:
        """Read on; whether a mean return of 100 episodes was at the target."""
        ...


class EpisodeJudge:
    """Judges by the records of `board_episodes.py`; stops reading at the target."""

    def __init__(self, path: Path, frames: int = 1) -> None:
        self._path, self._frames, self._read = path, frames, 0
        self._steps_of: dict[int, int] = {}
        self._running: dict[tuple[int, int], float] = {}
        self._ended: list[tuple[float, float]] = []  # a heap of begin and return
        self._newest: deque[float] = deque(maxlen=EPISODES)

    @property
    def steps(self) -> int:
        """Agent steps of all processes at their newest records."""
        return sum(self._steps_of.values()) // self._frames

    @property
    def mean(self) -> float | None:
        """Mean return of the newest 100 episodes that count."""
        whole = len(self._newest) == EPISODES
        return math.fsum(self._newest) / EPISODES if whole else None

    def reached(self, target: float) -> bool:
        """Read on; whether the mean was at the target."""
        for process, number, steps, begun_s, return_ in self._new_records():
            self._steps_of[process] = steps
            if math.isnan(return_):
                self._running[process, number] = begun_s
                continue
            self._running.pop((process, number), None)
            if math.isfinite(return_):
                heapq.heappush(self._ended, (begun_s, return_))
            oldest = min(self._running.values(), default=math.inf)
            while self._ended and self._ended[0][0] <= oldest:
                self._newest.append(heapq.heappop(self._ended)[1])
                if self.mean is not None and self.mean >= target:
                    return True
        return False

    def _new_records(self) -> Iterator[tuple[int, int, int, float, float]]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = len(data) - len(data) % _RECORD.size
        for record in _RECORD.iter_unpack(data[:whole]):
            self._read += _RECORD.size
            yield record


class MetricsJudge:
    """Judges by aclearn's metrics lines, whose `return_mean_100` is that mean."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0
        self.steps = 0
        self.mean: float | None = None

    def reached(self, target: float) -> bool:
        """Read on; whether the mean was at the target."""
        if not self._path.exists():
            return False
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        for text in data[: data.rfind(b"\n") + 1].splitlines(keepends=True):
            self._read += len(text)
            line = json.loads(text)
            self.steps = line["env_steps"]
            if (line["episodes_in_mean"] or 0) >= EPISODES:
                self.mean = line["return_mean_100"]
                if self.mean is not None and self.mean >= target:
                    return True
        return False


class Tree:
    """All processes below this one. Orphans become its children from now on."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")

    def stop(self) -> float:
        """Stop all; CPU seconds of all so far, those that have ended included."""
        stopped: set[int] = set()
        while new := self._living().keys() - stopped:
            self._signal(new, signal.SIGSTOP)
            stopped |= new
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)
        return waited.ru_utime + waited.ru_stime + sum(self._living().values())

    def kill(self) -> None:
        """Kill all, and wait for their ends.

        Raises:
            TimeoutError: some did not end.
        """
        end = time.monotonic() + _KILLED_WITHIN_S
        while living := self._living():
            self._signal(living, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if time.monotonic() > end:
                raise TimeoutError(f"{[*living]} did not end within {_KILLED_WITHIN_S} s")
            time.sleep(0.01)

    def _living(self) -> dict[int, float]:
        """Each process → CPU seconds of it and of its children that it has waited for."""
        below, living = [os.getpid()], dict[int, float]()
        while below:
            for process in _children(below.pop()):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
                    living[process] = sum(map(int, stat[11:15])) / _TICKS_PER_S
                    below.append(process)
        return living

    @staticmethod
    def _signal(processes: Iterable[int], number: int) -> None:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)


def _children(process: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{process}/task")
        return [
            int(child)
            for thread in threads
            for child in Path(f"/proc/{process}/task/{thread}/children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []


def busy_s() -> float:
    """CPU seconds of all cores since the machine's start."""
    with open("/proc/stat") as file:
        fields = [int(each) for each in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS_PER_S


def measure(command: Sequence[str], judge: Judge, *, target: float, limit_s: float) -> Measured:
    """Run a command until the judge sees the target, the limit is over or it ends.

    Its output goes to the standard error of this process. Nothing of it lives on.
    """
    tree = Tree()
    began, busy_before = time.monotonic(), busy_s()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    ended = ""
    try:
        while not ended:
            now = time.monotonic()
            over = process.poll()
            if judge.reached(target):
                ended = "reached"
            elif over is not None:
                ended = "failed" if over else "over"
            elif now - began >= limit_s:
                ended = "limit"
            else:
                time.sleep(_JUDGE_EVERY_S)
        wall_s = time.monotonic() - began
        core_s = tree.stop()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it would break off the killing
        tree.kill()
    own = time.process_time()
    lasted_s = time.monotonic() - began
    others = max(0.0, busy_s() - busy_before - core_s - own) / lasted_s / (os.cpu_count() or 1)
    return Measured(
        ended, judge.steps, judge.mean, round(core_s, 2), round(wall_s, 2), round(others, 3)
    )


def main() -> None:
    """Measure the command of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--limit-s", type=float, required=True)
    parser.add_argument("--episodes", type=Path)
    parser.add_argument("--frames", type=int, default=1, help="recorded steps of an agent step")
    parser.add_argument("--metrics", type=Path)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    judge: Judge
    if options.metrics:
        judge = MetricsJudge(options.metrics)
    elif options.episodes:
        judge = EpisodeJudge(options.episodes, options.frames)
    else:
        parser.error("--episodes or --metrics: the training's returns")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # kills the tree on its way
    found = measure(options.command, judge, target=options.target, limit_s=options.limit_s)
    sys.stdout.write(json.dumps(asdict(found)) + "\n")


if __name__ == "__main__":
    main()
