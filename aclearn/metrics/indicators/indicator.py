"""The contract of an indicator: figures of a metrics line that follow from the other figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Episode:
    """An episode that has ended.

    Attributes:
        return_: sum of its true rewards.
        policy: the one that chose its actions: "original" (the uncompressed one), "compressed",
            "mixed" if both did, "" where that is not known.
    """

    return_: float
    policy: str = ""


@dataclass(frozen=True)
class RunSample:
    """The run at one moment; read-only.

    Attributes:
        line: the figures of all roles and plug-ins and of the indicators before this one, as in
            `metrics.jsonl`; `time_s` is the clock.
        episodes: those reported since the last sample.
    """

    line: Mapping[str, Any]
    episodes: Sequence[Episode] = ()


class Indicator:
    """Computes figures in the monitor. Pure: no socket, no thread, no clock.

    An error that it raises is counted and logged, its figures are null, and the run goes on.

    Attributes:
        names: of its figures; no line has them otherwise.
    """

    names: ClassVar[Sequence[str]] = ()

    def observe(self, run: RunSample) -> Mapping[str, float | None]:
        """The figures now; null where one is None or left out.

        Called for each written line, and twice a second if the monitor has plug-ins.
        """
        raise NotImplementedError
