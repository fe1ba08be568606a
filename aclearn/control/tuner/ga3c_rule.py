"""GA3C's dynamic adjustment of its counts, as its released code has it (`tuner.rule: ga3c`)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from aclearn.control.tuner.decision import Decision, Verdict
from aclearn.control.tuner.setting_stats import Estimate

#: Seconds after which counts that the roles have not taken over are reverted.
_TAKEOVER_S = 30.0


class Ga3cRule:
    """`ThreadDynamicAdjustment.run` of NVlabs/GA3C, with the methods of `Tuner`.

    As in that code:

    * Each step moves every count by -1, 0 or 1 at random; a step that changes nothing is drawn
      again.
    * A step is kept if the counter rose by at least as much as in the last window, even where that
      one belonged to rejected counts. There is neither noise nor a temperature.
    * A rejected step reverts only the numbers: they run with the next step's move on top.
    * The first window is half as long as the others (10 s and 20 s there), so that the first step
      is nearly always kept. There is no pause before a window.

    Different from it: counts have an upper bound; a window begins when the roles report the counts;
    counts that they never take over are reverted.

    Args:
        start: count by name.
        most: upper bound by name; the lower bound is 1.
        every_s: length of a window, in seconds.
        rng: draws the steps.
    """

    temperature, frozen = 0.0, False

    def __init__(
        self,
        start: Mapping[str, int],
        most: Mapping[str, int],
        *,
        every_s: float,
        rng: random.Random,
        **unused: Any,
    ) -> None:
        self._counts, self._most, self._rng = dict(start), dict(most), rng
        self._step_s, self._window_s = every_s, every_s / 2
        self._kept, self._old_count = dict(start), 0
        self._asked_at: float | None = None
        self._began: tuple[float, int, str] | None = None
        self.rate: float | None = None

    @property
    def kept(self) -> dict[str, int]:
        """The counts before the current step."""
        return dict(self._kept)

    @property
    def kept_estimate(self) -> Estimate:
        """Nothing: the rule knows the last window alone."""
        return Estimate()

    def propose(self, suggested: str | None = None) -> dict[str, int]:
        """The counts that should run now."""
        return dict(self._counts)

    def best(self) -> None:
        """None: the rule remembers no counts."""

    def observe(
        self,
        now: float,
        counter: int,
        counts: Mapping[str, int],
        *,
        incarnation: str = "",
        **unused: Any,
    ) -> list[Decision]:
        """Take a sample, as `Tuner.observe`; the end of a window decides."""
        if self._asked_at is None:
            self._asked_at = now
        if any(counts.get(name) != count for name, count in self._counts.items()):
            self._began = None
            if now - self._asked_at <= _TAKEOVER_S:
                return []
            return [self._end("given up", f"the roles run {dict(counts)}; reverted")]
        if self._began is None or self._began[2] != incarnation or counter < self._began[1]:
            self._began = (now, counter, incarnation)
            return []
        seconds, count = now - self._began[0], counter - self._began[1]
        if seconds < self._window_s:
            return []
        worse, old = count < self._old_count, self._old_count
        self._old_count, self._window_s, self.rate = count, self._step_s, count / seconds
        reason = f"counted {count} after {old} in the window before"
        return [self._end("rejected" if worse else "accepted", reason, seconds)]

    def _end(self, verdict: Verdict, reason: str, seconds: float | None = None) -> Decision:
        """Keep or revert the step, then take the next one."""
        measured = dict(self._counts)
        if verdict == "accepted":
            self._kept = measured
        while True:
            steps = {name: self._rng.choice((-1, 0, 1)) for name in self._most}
            self._counts = {
                name: min(most, max(1, self._kept[name] - steps[name]))
                for name, most in self._most.items()
            }
            if self._counts != self._kept or set(self._most.values()) == {1}:
                break
        self._asked_at = self._began = None
        return Decision(
            verdict=verdict,
            reason=reason,
            counts=measured,
            kept=self.kept,
            rate=self.rate if seconds else None,
            window_s=seconds,
            baseline=None,
            change=None,
            noise=0.0,
            temperature=0.0,
            state="searching",
        )
