"""The tuner's search: the kept setting, the next trial, and the decision on a window's reading."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from aclearn.control.tuner.decision import Decision, Verdict
from aclearn.control.tuner.rate_window import Reading
from aclearn.control.tuner.setting_stats import (
    MOST_WINDOWS,
    OUTLIER,
    PRECISE,
    Estimate,
    Setting,
    SettingStats,
)

#: Shortest parts of a window after which a clearly worse or better trial is ended, and the standard
#: deviations of such a change.
_WORSE_AFTER, _BETTER_AFTER, _EARLY = 1 / 3, 1 / 2, 3.0
#: Setbacks that end a trial: deaths of roles, or windows in which nothing is counted.
_MOST_SETBACKS = 2
#: Windows of the kept setting before trials are compared with it.
_BASELINE_WINDOWS = 2


class AnnealingSearch:
    """Simulated annealing over settings, one count at a time. It has no clock.

    Args:
        start: count by name at which the search begins.
        most: upper bound by name; the lower bound is 1.
        every_s: length of a window, in seconds.
        temperature: relative loss accepted with probability 1/e at the start; 0 accepts none.
        cooling: factor of the temperature with each trial.
        restart_search_share: deviation of the kept setting's rate that restarts the search.
        rng: chooses trials and accepts losses.

    Attributes:
        temperature: now.
        frozen: whether the search has ended.
        rate: of the last window that was judged, per second.

    Raises:
        ValueError: a count outside its bounds, or no count at all.
    """

    def __init__(
        self,
        start: Mapping[str, int],
        most: Mapping[str, int],
        *,
        every_s: float,
        temperature: float,
        cooling: float,
        restart_search_share: float,
        rng: random.Random,
    ) -> None:
        if not start or start.keys() != most.keys():
            raise ValueError(f"counts and bounds must have the same names: {start}, {most}")
        for name, count in start.items():
            if not 1 <= count <= most[name]:
                raise ValueError(f"{name}: {count} is not within 1 and {most[name]}")
        self._names = tuple(sorted(start))
        self._every_s, self._restart_share = every_s, restart_search_share
        self._hot, self._cooling, self._rng = temperature, cooling, rng
        self.temperature = temperature
        self.frozen = False
        self.rate: float | None = None
        self._kept: Setting = tuple(start[name] for name in self._names)
        self._trial: Setting | None = None
        #: Whether the kept setting is known and a trial is due.
        self._wants_trial = False
        self._known = SettingStats([most[name] for name in self._names])
        self._setbacks = 0
        self._suspect: Reading | None = None

    @property
    def kept(self) -> dict[str, int]:
        """The counts of the kept setting."""
        return self._named(self._kept)

    @property
    def kept_estimate(self) -> Estimate:
        """Its estimated rate; no windows before its first measurement."""
        return self._known.of(self._kept)

    @property
    def noise(self) -> float:
        """Relative standard deviation of a full window."""
        return self._known.noise.sd

    def best(self) -> tuple[dict[str, int], float] | None:
        """The counts known to be the best, and their rate per second; None while none are known.

        Once frozen, this is the kept setting. Before, it is the one with the best rate, in at least
        two windows where there is any such: at a high temperature the kept one may be worse.
        """
        # after a change so large that all before is forgotten, only one window is known
        known = self._known.measured(_BASELINE_WINDOWS) or self._known.measured()
        if not known:
            return None
        best = self._kept if self.frozen and self._kept in known else known[0]
        return self._named(best), self._known.rate(best)

    def _named(self, setting: Setting) -> dict[str, int]:
        return dict(zip(self._names, setting, strict=True))

    def _set_back(self, times: int) -> bool:
        """Count setbacks of the trial; True ends it."""
        self._setbacks += times
        return self._setbacks >= _MOST_SETBACKS

    def _decide(
        self,
        verdict: Verdict,
        reason: str,
        measured: Setting,
        reading: Reading | None = None,
        *,
        change: float | None = None,
        baseline: float | None = None,
    ) -> Decision:
        if baseline is None and self.kept_estimate.windows:
            baseline = self.kept_estimate.mean
        return Decision(
            verdict=verdict,
            reason=reason,
            counts=self._named(measured),
            kept=self.kept,
            rate=reading.rate if reading else None,
            window_s=reading.window_s if reading else None,
            baseline=baseline,
            change=change,
            noise=self.noise,
            temperature=self.temperature,
            state="frozen" if self.frozen else "searching",
        )

    def _judge_kept(self, reading: Reading) -> list[Decision]:
        if reading.window_s < self._every_s:
            return []
        kept, estimate = self._kept, self.kept_estimate
        weight = reading.window_s / self._every_s
        self.rate = reading.rate
        known = estimate.windows >= _BASELINE_WINDOWS
        if not known and reading.rate <= 0.0:
            return [self._decide("idle", "nothing was counted: no decision", kept, reading)]
        if estimate.windows:
            deviation = reading.rate / estimate.mean - 1.0
            noise = self._known.noise.of_change(1.0, estimate.windows)
            # a rate of zero is never noise: no estimate may become zero
            if reading.rate <= 0.0 or abs(deviation) > max(self._restart_share, OUTLIER * noise):
                if known:
                    return [self._doubt(reading, deviation)]
                self._known.restart(kept, reading.rate, weight)
                reason = f"{deviation:+.1%} from the window before, which is forgotten"
                return [self._decide("baseline", reason, kept, reading)]
        self._suspect = None
        if not (self.frozen and estimate.windows >= MOST_WINDOWS):
            # when frozen, a full estimate stays fixed, so that a slow change adds up to a restart
            self._known.learn(kept, reading.rate, weight)
        known = self.kept_estimate.windows >= _BASELINE_WINDOWS
        words = f"{self.kept_estimate.windows:.3g} windows"
        if known and not self.frozen:
            words += self._go_on()
        return [self._decide("kept" if known else "baseline", words, kept, reading)]

    def _doubt(self, reading: Reading, deviation: float) -> Decision:
        """The kept setting deviates; the first deviation may be chance."""
        words = f"{deviation:+.1%} from its estimate"
        first, self._suspect = self._suspect, reading
        baseline = self.kept_estimate.mean
        if first is None or (first.rate > baseline) != (reading.rate > baseline):
            return self._decide("suspect", f"{words}; measured again", self._kept, reading)
        self._suspect = None
        self._known.forget()
        self.frozen, self.temperature = False, self._hot
        for seen in (first, reading):
            if seen.rate > 0.0:
                self._known.learn(self._kept, seen.rate, seen.window_s / self._every_s)
        reason = f"{words}, twice in a row: the machine's load changed, everything is tried again"
        return self._decide("restarted", reason, self._kept, reading, baseline=baseline)

    def _judge_trial(self, trial: Setting, reading: Reading, silence_s: float) -> list[Decision]:
        """Judge a trial's window so far; a role may have been dead for its last `silence_s`."""
        early, kept = reading.window_s - silence_s < self._every_s, self.kept_estimate
        if early and not self._is_clear(reading, silence_s):
            return []
        self.rate = reading.rate
        if reading.rate <= 0.0:
            return [self._judge_silent(trial, reading)]
        self._known.learn(trial, reading.rate, reading.window_s / self._every_s)
        change, sd = self._known.compare(self._kept, trial)
        words, worth = f"{change:+.1%} ± {sd:.1%}", self._known.worth_trying(self._kept)
        if not early and worth and max(worth, key=worth.__getitem__) == trial:
            reason = f"{words} is within the noise; measured again"
            return [self._decide("repeat", reason, trial, reading, change=change)]
        gain = change - self._known.cost(self._kept, trial)
        chance = self._chance(gain)
        accepted = gain >= 0.0 or self._rng.random() < chance
        self.temperature *= self._cooling
        self._trial = None
        if accepted:
            self._move(trial)
            words += " is better" if gain >= 0.0 else f", accepted by {chance:.0%}"
        else:
            words += " is worse; reverted"
        verdict: Verdict = "accepted" if accepted else "rejected"
        reason = f"{words}{' (seen early)' if early else ''}{self._go_on()}"
        return [self._decide(verdict, reason, trial, reading, change=change, baseline=kept.mean)]

    def _is_clear(self, reading: Reading, silence_s: float) -> bool:
        """Whether a part of a window is enough to judge a trial."""
        weight, kept = reading.window_s / self._every_s, self.kept_estimate
        if weight < _WORSE_AFTER:
            return False
        so_far = reading.rate / kept.mean - 1.0
        noise = _EARLY * self._known.noise.of_change(weight, kept.windows)
        if so_far + noise <= -max(_EARLY * self.temperature, PRECISE):
            return True
        # time enough to detect a role that died of the trial
        heard_s = reading.window_s - silence_s
        return heard_s >= _BETTER_AFTER * self._every_s and so_far - noise >= PRECISE

    def _judge_silent(self, trial: Setting, reading: Reading) -> Decision:
        """A trial in which nothing was counted: the first time the cause may be a disk that hung.

        The second time it is rejected at any temperature and never tried again: no setting can be
        compared with a rate of zero.
        """
        if not self._set_back(1):
            reason = "nothing was counted; measured again"
            return self._decide("repeat", reason, trial, reading, change=-1.0)
        self._known.unreachable.add(trial)
        self.temperature *= self._cooling
        self._trial, reason = None, "nothing was counted; reverted"
        return self._decide("rejected", reason, trial, reading, change=-1.0)

    def _go_on(self) -> str:
        """The next step once the kept setting is known: a trial, a move from memory, freezing."""
        known = self._known
        if known.worth_trying(self._kept):
            self._wants_trial = True
            return ""
        reachable = [s for s in known.measured() if s not in known.unreachable]
        gains = {s: known.compare(self._kept, s)[0] - known.cost(self._kept, s) for s in reachable}
        best = max(reachable, key=gains.__getitem__)
        if gains[best] > 0.0:
            return self._move_from_memory(best, "was the best") + self._go_on()
        self.frozen = True
        return "; no neighbour is better: frozen"

    def _move_from_memory(self, other: Setting, why: str) -> str:
        change, sd = self._known.compare(self._kept, other)
        self._move(other)
        return f"; {self.kept} {why} ({change:+.1%} ± {sd:.1%})"

    def _move(self, to: Setting) -> None:
        self._kept, self._suspect = to, None

    def _chance(self, gain: float) -> float:
        """Probability of accepting a relative gain (Metropolis et al. 1953)."""
        if gain >= 0.0:
            return 1.0
        return math.exp(gain / self.temperature) if self.temperature > 0.0 else 0.0
