"""The tuner's decisions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal[
    "baseline",  # the kept setting's first windows
    "kept",  # the kept setting was measured again
    "suspect",  # the kept setting deviates; a second window decides
    "restarted",  # it deviates twice: the search starts again
    "repeat",  # a trial within the noise is measured again
    "accepted",
    "rejected",
    "given up",  # the roles did not apply the counts, or died of them
    "adopted",  # the kept counts cannot be applied either: the running counts are kept
    "discarded",  # the window was broken and begins again
    "idle",  # nothing was counted: no decision
]


@dataclass(frozen=True)
class Decision:
    """One reading and the decision on it; its fields are those of a line of `tuner.jsonl`.

    Attributes:
        verdict: in a word; `reason` explains it.
        counts: the measured counts.
        kept: the counts that are kept from now on.
        rate: of the objective, per second; None without a whole window.
        window_s: length of that window, in seconds.
        baseline: estimated rate of the counts kept before; None before there is one.
        change: relative change from the baseline to the trial's estimate.
        noise: relative standard deviation of a full window.
        temperature: after this decision.
        state: searching or frozen, after this decision.
    """

    verdict: Verdict
    reason: str
    counts: dict[str, int]
    kept: dict[str, int]
    rate: float | None
    window_s: float | None
    baseline: float | None
    change: float | None
    noise: float
    temperature: float
    state: Literal["searching", "frozen"]

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
