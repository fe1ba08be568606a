"""What `tuner.py` and `tuner_model.py` compare the tuner with: GA3C's rule, and a sweep."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from aclearn.config import TunerConfig
from aclearn.control.tuner.decision import Decision
from aclearn.control.tuner.rate_window import RateWindow, Reading

#: Seconds after which GA3C's rule reverts counts that the roles have not applied.
_TAKEOVER_S = 30.0


class Rule:
    """A rule with the methods of `Tuner`, as its plug-in calls them. It has no memory."""

    temperature, frozen = 0.0, False

    def __init__(
        self,
        start: Mapping[str, int],
        most: Mapping[str, int],
        config: TunerConfig,
        rng: random.Random,
    ) -> None:
        self._counts, self._most, self._rng = dict(start), dict(most), rng
        self._every_s = config.every_s
        self._window = RateWindow(settle_s=config.settle_s, longest_gap_s=config.longest_gap_s)
        self.kept = dict(start)

    def propose(self) -> dict[str, int]:
        """The counts that should run now."""
        return dict(self._counts)

    def _decide(
        self, verdict: str, reason: str, counts: dict[str, int], reading: Reading | None
    ) -> Decision:
        return Decision(
            verdict=verdict,
            reason=reason,
            counts=counts,
            kept=dict(self.kept),
            rate=reading.rate if reading else None,
            window_s=reading.window_s if reading else None,
            baseline=None,
            change=None,
            noise=0.0,
            temperature=0.0,
            state="searching",
        )


class Ga3cRule(Rule):
    """`ThreadDynamicAdjustment.run` of NVlabs/GA3C, with its defects.

    * Each step moves every count by -1, 0 or 1 at random; a step that changes nothing is drawn
      again.
    * A step is kept if the counter rose by at least as much as in the last window, even where that
      one belonged to rejected counts. There is neither noise nor a temperature.
    * A rejected step reverts only the numbers: they run with the next step's move on top.
    * The first window is half as long as the others (10 s and 20 s there), so that the first step
      is nearly always kept. There is no pause before a window.

    Different from it: counts have an upper bound; a window begins when the roles report the counts;
    counts that they never apply are reverted.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._window_s, self._old_count = self._every_s / 2, 0
        self._asked_at: float | None = None
        self._began: tuple[float, int, str] | None = None

    def observe(
        self,
        now: float,
        counter: int,
        counts: Mapping[str, int],
        *,
        incarnation: str = "",
        **unused: Any,
    ) -> Decision | None:
        """Take a sample; the end of a window decides."""
        if self._asked_at is None:
            self._asked_at = now
        if any(counts.get(name) != count for name, count in self._counts.items()):
            self._began = None
            if now - self._asked_at <= _TAKEOVER_S:
                return None
            return self._end("given up", f"the roles run {dict(counts)}; reverted")
        if self._began is None or self._began[2] != incarnation or counter < self._began[1]:
            self._began = (now, counter, incarnation)
            return None
        seconds, count = now - self._began[0], counter - self._began[1]
        if seconds < self._window_s:
            return None
        worse, old = count < self._old_count, self._old_count
        self._old_count, self._window_s = count, self._every_s
        reason = f"counted {count} after {old} in the window before"
        reading = Reading(count / seconds, seconds)
        return self._end("rejected" if worse else "accepted", reason, reading)

    def _end(self, verdict: str, reason: str, reading: Reading | None = None) -> Decision:
        """Keep or revert the step, then take the next one."""
        measured = dict(self._counts)
        if verdict == "accepted":
            self.kept = measured
        while True:
            steps = {name: self._rng.choice((-1, 0, 1)) for name in self._most}
            self._counts = {
                name: min(most, max(1, self.kept[name] - steps[name]))
                for name, most in self._most.items()
            }
            if self._counts != self.kept or set(self._most.values()) == {1}:
                break
        self._asked_at = self._began = None
        return self._decide(verdict, reason, measured, reading)


class Sweep(Rule):
    """Every setting for a window once a round, in random order."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._left: list[Sequence[int]] = []

    def observe(
        self, now: float, counter: int, counts: Mapping[str, int], **unused: Any
    ) -> Decision | None:
        """Take a sample; the end of a window begins that of the next setting."""
        runs = all(counts.get(name) == count for name, count in self._counts.items())
        reading = self._window.observe(now, counter, runs=runs)
        if not isinstance(reading, Reading) or reading.window_s < self._every_s:
            return None
        self._window.begin(now)
        measured = self._counts
        if not self._left:
            every = list(itertools.product(*(range(1, most + 1) for most in self._most.values())))
            self._left = self._rng.sample(every, len(every))
        self._counts = self.kept = dict(zip(self._most, self._left.pop(), strict=True))
        return self._decide("kept", "sweep", measured, reading)


RULES: dict[str, type[Rule]] = {"ga3c": Ga3cRule, "sweep": Sweep}
