"""The contract of an indicator: metrics computed from the other metrics of a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Episode:
    """An episode that has ended.

    Attributes:
        return_: sum of its true rewards.
        policy: that chose its actions: "original" (the uncompressed one), "compressed", "mixed" if
            both did, "" if unknown.
    """

    return_: float
    policy: str = ""


@dataclass(frozen=True)
class RunSample:
    """The run at one moment; read-only.

    Attributes:
        line: the metrics of all roles and plug-ins and of earlier indicators, as in
            `metrics.jsonl`; `time_s` is the clock.
        episodes: those reported since the last sample.
    """

    line: Mapping[str, Any]
    episodes: Sequence[Episode] = ()


class Indicator:
    """Computes metrics in the monitor. Pure: no socket, no thread, no clock.

    Its errors are counted and logged, its metrics are then null, and the run continues.

    Attributes:
        names: of its metrics; unique in a line.
    """

    names: ClassVar[Sequence[str]] = ()

    def observe(self, run: RunSample) -> Mapping[str, float | None]:
        """The present metrics; None or missing means null.

        Called for each written line, and twice a second if the monitor has plug-ins.
        """
        raise NotImplementedError
