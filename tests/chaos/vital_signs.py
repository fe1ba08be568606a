"""Memory, descriptors and threads of processes over time, and whether they stay flat."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

#: Growth from the first to the last quarter of a process's samples that counts as flat: of memory
#: a share and megabytes (allocators keep what they had at a peak), of the others a number
#: (connections of peers that have just been started again).
MOST_GROWTH, MOST_GROWTH_MB, MOST_MORE = 0.10, 12.0, 8
#: Samples without which nothing is said about a process.
LEAST_SAMPLES = 8


@dataclass(frozen=True)
class Sample:
    """One look at a process: resident memory in megabytes, open descriptors, threads."""

    rss_mb: float
    descriptors: int
    threads: int


@dataclass
class VitalSigns:
    """Samples of processes, by name and process id: one that was started again begins anew."""

    samples: dict[tuple[str, int], list[Sample]] = field(default_factory=dict)

    def look(self, pids: Mapping[str, int]) -> None:
        """Take a sample of each; one that has just ended is left out."""
        for name, pid in pids.items():
            try:
                process = psutil.Process(pid)
                with process.oneshot():
                    rss_mb = process.memory_info().rss / 1e6
                    sample = Sample(rss_mb, process.num_fds(), process.num_threads())
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
            self.samples.setdefault((name, pid), []).append(sample)

    def growing(self) -> list[str]:
        """What has grown, in words; [] if all is flat."""
        return [
            f"{name} (process {pid}): {what}"
            for (name, pid), samples in self.samples.items()
            for what in growth(samples)
        ]


def growth(samples: Sequence[Sample]) -> list[str]:
    """What of one process has grown; [] if it is flat or has too few samples to tell."""
    if len(samples) < LEAST_SAMPLES:
        return []
    first, last = quarters(samples)
    found = []
    before, after = (statistics.median(s.rss_mb for s in part) for part in (first, last))
    if after > before + max(MOST_GROWTH * before, MOST_GROWTH_MB):
        found.append(f"resident memory from {before:.0f} to {after:.0f} MB")
    for name in ("descriptors", "threads"):
        before, after = (statistics.median(getattr(s, name) for s in p) for p in (first, last))
        if after > before + MOST_MORE:
            found.append(f"{name} from {before:g} to {after:g}")
    return found


def quarters(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """The second eighth to the end of the first quarter, and the last quarter.

    The first eighth is a start: imports, buffers, queues.
    """
    count = len(samples)
    return samples[count // 8 : max(count // 4, count // 8 + 1)], samples[-(count // 4) :]
