"""A note on steps that are learned at a rate of 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ScheduleNote:
    """Finds in metrics lines when the schedule of the learning rate is over."""

    def __init__(self) -> None:
        self._over = False

    def observe(self, line: Mapping[str, Any]) -> list[str]:
        """The note, once, at the first line whose last batch was learned at a rate of 0."""
        before, self._over = self._over, line.get("learning_rate") == 0.0
        if before or not self._over:
            return []
        return [
            "the schedule of the learning rate is over: from here on steps are learned at a rate "
            "of 0, which changes nothing; end the run, or resume it with a larger "
            "optimiser.schedule_steps"
        ]
