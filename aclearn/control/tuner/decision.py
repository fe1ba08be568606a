"""The tuner's decisions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Decision:
    """One reading and the decision on it: the fields of a line of `tuner.jsonl`.

    docs/metrics.md has the verdicts. Rates are per second, changes and noise relative; what was
    not measured is None.
    """

    verdict: str
    reason: str
    counts: dict[str, int]
    kept: dict[str, int]
    rate: float | None
    window_s: float | None
    baseline: float | None
    change: float | None
    noise: float
    temperature: float
    state: str

    @property
    def label(self) -> str:
        """The verdict as a part of a metric's name."""
        return self.verdict.replace(" ", "_")

    def cause(self) -> dict[str, Any]:
        """The numbers of this decision, for the log of the directive."""
        names = ("verdict", "counts", "rate", "baseline", "change", "temperature")
        return {name: getattr(self, name) for name in names}

    def scalars(self) -> dict[str, Any]:
        """Numbers by TensorBoard's names; the verdict is the name of a number that is 1."""
        numbers = {n: v for n, v in asdict(self).items() if n not in ("reason", "state", "verdict")}
        numbers |= {"frozen": float(self.state == "frozen"), "verdict": {self.label: 1.0}}
        return {"tuner_decision": numbers}
