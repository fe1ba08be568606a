"""Shares of the roles' time, by what they waited for."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aclearn.telemetry import TOTAL, shares


@dataclass
class _Samples:
    """The newest `WaitMeter.seconds()` of one process, and their times."""

    role: str
    timed: deque[tuple[float, Mapping[str, float]]] = field(default_factory=deque)


class WaitShares:
    """Each role's shares of its time in a sliding window. Pure: time is an argument."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._samples: dict[str, _Samples] = {}

    def observe(self, process: str, role: str, waits: Mapping[str, float], now: float) -> None:
        """Add a process's `WaitMeter.seconds()`; those without the total are ignored."""
        if TOTAL not in waits:
            return
        timed = self._samples.setdefault(process, _Samples(role)).timed
        if len(timed) > 1 and now - timed[-1][0] < self._window_s / 100:
            timed[-1] = (timed[-1][0], dict(waits))
        else:
            timed.append((now, dict(waits)))
        self._drop_old(timed, now)

    def forget(self, process: str) -> None:
        """Drop a process."""
        self._samples.pop(process, None)

    def restart(self) -> None:
        """Drop all but the last two samples of each process, as after a silence."""
        for samples in self._samples.values():
            while len(samples.timed) > 2:
                samples.timed.popleft()

    def by_role(self, now: float) -> dict[str, dict[str, float]]:
        """Role → "working" or a reason to wait → mean share over its processes."""
        collected: dict[str, list[dict[str, float]]] = {}
        for samples in self._samples.values():
            timed = samples.timed
            self._drop_old(timed, now)
            before = timed[0][1] if len(timed) > 1 else {}
            collected.setdefault(samples.role, []).append(shares(before, timed[-1][1]))
        return {role: _mean_share(parts) for role, parts in collected.items()}

    def _drop_old(self, timed: deque[tuple[float, Mapping[str, float]]], now: float) -> None:
        # Two stay, so that a silent role still shows its last rate.
        while len(timed) > 2 and timed[1][0] <= now - self._window_s:
            timed.popleft()


def _mean_share(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    labels = sorted({label for part in parts for label in part})
    return {
        label: math.fsum(part.get(label, 0.0) for part in parts) / len(parts) for label in labels
    }
