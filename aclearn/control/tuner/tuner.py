"""The tuner: simulated annealing over worker counts during the run (GA3C, section 4.3).

GA3C's code compares each window with the previous one, never measures the setting it returns to,
and has no windows of fixed length, no noise estimate and no bounds. Here every trial is compared
with the measured rate of the kept setting.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from aclearn.control.tuner.decision import Decision, Verdict
from aclearn.control.tuner.rate_window import Discarded, RateWindow, Reading
from aclearn.control.tuner.setting_stats import (
    MOST_WINDOWS,
    OUTLIER,
    Estimate,
    Setting,
    SettingStats,
)

#: Shortest parts of a window after which a clearly worse or better trial is ended; the least such
#: change, and its standard deviations.
_WORSE_AFTER, _BETTER_AFTER, _LEAST_CHANGE, _EARLY = 1 / 3, 1 / 2, 0.01, 2.5
#: Setbacks that end a trial: deaths of roles, or windows in which nothing is counted.
_MOST_SETBACKS = 2
#: Windows of a setting before it is called the best, and before the search ends with it.
_BEST_WINDOWS, _FINAL_WINDOWS = 1.5, 4


class Tuner:
    """Changes one count at a time and keeps improvements. No thread, no file, no socket, no clock.

    `propose` gives the counts that should run now; `observe` takes samples. Call both in turns,
    several times in a window.

    * Measurement starts once the counter has risen; trials start once the kept setting has been
      measured twice: for a window, and for half of another.
    * A trial changes one count: doubled, halved, or by a quarter (at least 1), first in the
      direction that raised the rate before.
    * A trial waits until the roles have applied it, then `settle_s`, then measures a window of
      `every_s`, a part of it where the change is clear, or more where it is within the noise.
      Better ones are accepted; worse ones with probability exp(change / temperature). The
      temperature falls with each trial. Of equals the smaller count is better.
    * A death of a role restarts a trial's window; a second one ends the trial, since a role has few
      restarts.
    * When no neighbour may be better, the best setting is kept and the search freezes. Two windows
      in a row of the kept setting that deviate by more than `restart_search_share` restart it.

    Args:
        start: count by name at which the search begins.
        most: upper bound by name; the lower bound is 1.
        every_s: length of a window, in seconds.
        settle_s: pause before a window, in seconds.
        longest_gap_s: between two samples; a longer one discards the window.
        temperature: relative loss accepted with probability 1/e at the start; 0 accepts none.
        cooling: factor of the temperature with each trial.
        restart_search_share: deviation of the kept setting's rate that restarts the search.
        rng: chooses trials and accepts losses.
        takeover_s: longest wait for the roles to apply counts, in seconds.

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
        settle_s: float,
        longest_gap_s: float,
        temperature: float,
        cooling: float,
        restart_search_share: float,
        rng: random.Random,
        takeover_s: float = 30.0,
    ) -> None:
        if not start or start.keys() != most.keys():
            raise ValueError(f"counts and bounds must have the same names: {start}, {most}")
        for name, count in start.items():
            if not 1 <= count <= most[name]:
                raise ValueError(f"{name}: {count} is not within 1 and {most[name]}")
        self._names = tuple(sorted(start))
        self._most = tuple(most[name] for name in self._names)
        self._every_s, self._restart_share, self._rng = every_s, restart_search_share, rng
        self._hot, self._cooling, self._takeover_s = temperature, cooling, takeover_s
        self.temperature = temperature
        self.frozen = False
        self.rate: float | None = None
        self._kept: Setting = tuple(start[name] for name in self._names)
        self._trial: Setting | None = None
        self._wants_trial = False
        self._known = SettingStats(self._most)
        self._window = RateWindow(settle_s=settle_s, longest_gap_s=longest_gap_s)
        self._setbacks = self._deaths = 0
        self._suspect: Reading | None = None

    @property
    def kept(self) -> dict[str, int]:
        """The counts of the kept setting."""
        return self._named(self._kept)

    @property
    def kept_estimate(self) -> Estimate:
        """Its estimated rate; no windows before its first measurement."""
        return self._known.of(self._kept)

    def best(self) -> tuple[dict[str, int], float] | None:
        """The counts known to be the best, and their rate per second; None while none are known.

        Once frozen, this is the kept setting. Before, it is the one with the best rate, in at least
        two windows where there is any such: at a high temperature the kept one may be worse.
        """
        found = self._kept if self.frozen else self._known.best(_BEST_WINDOWS) or self._known.best()
        return None if found is None else (self._named(found), self._known.of(found).mean)

    def propose(self, suggested: str | None = None) -> dict[str, int]:
        """The counts that should run now.

        Args:
            suggested: the count to raise, if the run's bottleneck is known: a hint only.
        """
        if self._wants_trial:
            self._wants_trial, self._setbacks = False, 0
            worth = self._known.worth_trying(self._kept)
            raised = {s: v for s, v in worth.items() if self._raises(suggested, s) and v >= 0.0}
            most = max((raised or worth).values())
            self._trial = self._rng.choice([s for s, v in (raised or worth).items() if v == most])
            self._window.begin()
        return self._named(self._trial or self._kept)

    def observe(
        self,
        now: float,
        counter: int,
        counts: Mapping[str, int],
        *,
        incarnation: str = "",
        deaths: int = 0,
        silence_s: float = 0.0,
    ) -> list[Decision]:
        """Take a sample; returns the decision, if any.

        Args:
            now: time of the sample, in seconds.
            counts: the running counts; unknown ones are left out.
            incarnation: of the process that counts; another one starts a new window.
            deaths: of roles, so far.
            silence_s: for how long a role may have been dead unnoticed, in seconds; a trial's
                window must be complete before that.
        """
        if self._wants_trial:
            return []  # measurement starts after `propose`
        trial, measured = self._trial, self._trial or self._kept
        running = tuple(counts.get(name, 0) for name in self._names)
        died, self._deaths = deaths - self._deaths, deaths
        # a death breaks a trial's window, since short windows would hide its cost; it does not
        # break one of the kept setting, since occasional deaths must not end the tuning
        reading = self._window.observe(
            now,
            counter,
            runs=running == measured,
            incarnation=incarnation,
            died=trial is not None and died > 0,
        )
        decided: Decision | None = None
        # a death that broke the window is one setback, not two
        if trial is not None and self._set_back(max(died, self._window.roles_broke)):
            decided = self._give_up(trial, "roles died of it, or changed their counts")
        elif isinstance(reading, Discarded):
            # the window has begun again
            return [self._decide("discarded", f"{reading.reason}; measured again", measured)]
        elif reading is not None:
            if trial is None:
                decided = self._judge_kept(reading)
            else:
                decided = self._judge_trial(trial, reading, silence_s)
        elif self._window.waited_s(now) > self._takeover_s:
            decided = self._not_taken_over(measured, running)
        if decided is None:
            return []
        # a setting that continues needs no new pause
        runs_on = (self._trial or self._kept) == measured
        self._window.begin(settled=reading is not None and runs_on)
        return [decided]

    def _judge_kept(self, reading: Reading) -> Decision | None:
        kept, estimate = self._kept, self.kept_estimate
        weight, before = reading.window_s / self._every_s, estimate.windows
        known = self._is_known()
        # half a window shows whether the first one was typical
        if weight < (0.5 if before and not known else 1.0):
            return None
        self.rate = reading.rate
        if reading.rate <= 0.0 and before < _BEST_WINDOWS:
            return self._decide("idle", "nothing was counted: no decision", kept, reading)
        if before:
            deviation = reading.rate / estimate.mean - 1.0
            noise = self._known.noise_of_change(1.0, before)
            # a rate of zero is never noise: no estimate may become zero
            if reading.rate <= 0.0 or abs(deviation) > max(self._restart_share, OUTLIER * noise):
                if known:
                    return self._doubt(reading, deviation)
                self._known.learn(kept, reading.rate, weight, anew=True)
                reason = f"{deviation:+.1%} from the window before, which is forgotten"
                return self._decide("baseline", reason, kept, reading)
        self._suspect = None
        if not (self.frozen and before >= MOST_WINDOWS):
            # when frozen, a full estimate stays fixed, so that a slow change adds up to a restart
            self._known.learn(kept, reading.rate, weight)
        words = f"{self.kept_estimate.windows:.3g} windows"
        known = self._is_known()
        if known and not self.frozen:
            words += self._go_on()
        return self._decide("kept" if known else "baseline", words, kept, reading)

    def _doubt(self, reading: Reading, deviation: float) -> Decision:
        """The kept setting deviates; the first deviation may be chance."""
        words = f"{deviation:+.1%} from its estimate"
        first, self._suspect = self._suspect, reading
        baseline = self.kept_estimate.mean
        if first is None or (first.rate > baseline) != (reading.rate > baseline):
            return self._decide("suspect", f"{words}; measured again", self._kept, reading)
        self._known.forget()
        self._keep(self._kept, anew=True)
        for seen in (first, reading):
            if seen.rate > 0.0:
                self._known.learn(self._kept, seen.rate, seen.window_s / self._every_s)
        reason = f"{words}, twice in a row: the machine's load changed, everything is tried again"
        return self._decide("restarted", reason, self._kept, reading, baseline=baseline)

    def _judge_trial(self, trial: Setting, reading: Reading, silence_s: float) -> Decision | None:
        """Judge a trial's window so far; a role may have been dead for its last `silence_s`."""
        early, baseline = reading.window_s - silence_s < self._every_s, self.kept_estimate.mean
        if early and not self._is_clear(reading, silence_s):
            return None
        self.rate = reading.rate
        if reading.rate <= 0.0:
            # no setting can be compared with a rate of zero; once, a disk may have hung
            if self._set_back(1):
                return self._give_up(trial, "nothing was counted", reading)
            reason = "nothing was counted; measured again"
            return self._decide("repeat", reason, trial, reading, change=-1.0)
        self._known.learn(trial, reading.rate, reading.window_s / self._every_s)
        gain, (change, sd) = (
            self._known.gain(self._kept, trial),
            self._known.compare(self._kept, trial),
        )
        words = f"{change:+.1%} ± {sd:.1%}"
        if not early and gain < sd and self._known.is_open(self._kept, trial):
            reason = f"{words} is within the noise; measured again"
            return self._decide("repeat", reason, trial, reading, change=change)
        hot = max(self.temperature, 1e-9)
        chance = math.exp(min(0.0, gain) / hot)  # Metropolis et al. 1953
        accepted = self._rng.random() < chance
        self._known.learn_slope(self._kept, trial)
        self.temperature *= self._cooling
        self._trial = None
        if accepted:
            self._keep(trial)
            words += " is better" if gain >= 0.0 else f", accepted by {chance:.0%}"
        else:
            words += " is worse; reverted"
        verdict: Verdict = "accepted" if accepted else "rejected"
        # a clear change needs no further window of the kept setting
        next_step = self._go_on() if abs(gain) > OUTLIER * sd or self._is_known() else ""
        reason = f"{words}{' (seen early)' if early else ''}{next_step}"
        return self._decide(verdict, reason, trial, reading, change=change, baseline=baseline)

    def _is_clear(self, reading: Reading, silence_s: float) -> bool:
        """Whether a part of a window is enough to judge a trial."""
        weight, kept = reading.window_s / self._every_s, self.kept_estimate
        if weight < _WORSE_AFTER:
            return False
        so_far = reading.rate / kept.mean - 1.0
        noise = _EARLY * self._known.noise_of_change(weight, kept.windows)
        if so_far + noise <= -max(_EARLY * self.temperature, _LEAST_CHANGE):
            return True
        # time enough to detect a role that died of the trial
        heard_s = reading.window_s - silence_s
        return heard_s >= _BETTER_AFTER * self._every_s and so_far - noise >= _LEAST_CHANGE

    def _is_known(self) -> bool:
        """Whether trials can be compared with the kept setting."""
        return self._known.noise_is_known and self.kept_estimate.windows >= 1.0

    def _go_on(self) -> str:
        """The next step: a trial, a better setting of before, another window, or the end."""
        if self._known.worth_trying(self._kept):
            self._wants_trial = True
            return ""
        best = self._known.best(_BEST_WINDOWS)
        if best is not None and self._known.gain(self._kept, best) > 0.0:
            change, sd = self._known.compare(self._kept, best)
            self._keep(best)
            return f"; {self.kept} was the best ({change:+.1%} ± {sd:.1%})" + self._go_on()
        if self.kept_estimate.windows < _FINAL_WINDOWS:
            return ""
        self.frozen = True
        return "; no neighbour is better: frozen"

    def _keep(self, setting: Setting, *, anew: bool = False) -> None:
        self._kept, self._suspect = setting, None
        if anew:
            self.frozen, self.temperature = False, self._hot

    def _set_back(self, times: int) -> bool:
        """Count setbacks of the trial; True ends it."""
        self._setbacks += times
        return self._setbacks >= _MOST_SETBACKS

    def _give_up(self, trial: Setting, why: str, reading: Reading | None = None) -> Decision:
        """End a trial that cannot be measured; it is never tried again."""
        self._trial = None
        self._known.unreachable.add(trial)
        return self._decide("given up", f"{why}; reverted", trial, reading)

    def _not_taken_over(self, measured: Setting, running: Setting) -> Decision:
        waited = f"the roles run {self._named(running)} after {self._takeover_s:.3g} s"
        if running == measured:
            waited = f"nothing was counted for {self._takeover_s:.3g} s"
        if self._trial is not None:
            return self._give_up(self._trial, waited)
        within = all(1 <= c <= most for c, most in zip(running, self._most, strict=True))
        if running == measured or not within:
            return self._decide("idle", f"{waited}; still waiting", measured)
        self._keep(running, anew=True)
        return self._decide("adopted", f"{waited}, so these are kept", measured)

    def _named(self, setting: Setting) -> dict[str, int]:
        return dict(zip(self._names, setting, strict=True))

    def _raises(self, name: str | None, setting: Setting) -> bool:
        return name in self._names and self._named(setting)[name] > self.kept[name]

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
        return Decision(
            verdict=verdict,
            reason=reason,
            counts=self._named(measured),
            kept=self.kept,
            rate=reading.rate if reading else None,
            window_s=reading.window_s if reading else None,
            baseline=baseline or self.kept_estimate.mean or None,
            change=change,
            noise=self._known.noise,
            temperature=self.temperature,
            state="frozen" if self.frozen else "searching",
        )
