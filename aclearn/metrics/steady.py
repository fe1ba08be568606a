"""Advice that stays long enough to be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aclearn.metrics.bottleneck import Bottleneck, bottleneck_of

#: Seconds of the run in which a finding must not have been made again before another is told.
_KEPT_S = 15.0


class SteadyBottleneck:
    """The bottleneck that is told: another one only when the last was not found for a while.

    Two roles that hold a run up in turns, or a core that is free now and then, would flip the
    advice with each line. Pure; its clock is the lines' `time_s`. The numbers in the sentence are
    those of when it was last found.
    """

    def __init__(self) -> None:
        self._told: Bottleneck | None = None
        self._found_at_s = 0.0

    def observe(self, line: Mapping[str, Any]) -> Bottleneck:
        """What to tell as of this metrics line, given those before it."""
        found, now_s = bottleneck_of(line), float(line.get("time_s") or 0.0)
        told = self._told
        expired = now_s - self._found_at_s >= _KEPT_S
        if told is None or told.early or found.kind == told.kind or expired:
            self._told, self._found_at_s = found, now_s
            return found
        return told
