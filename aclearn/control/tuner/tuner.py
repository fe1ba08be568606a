"""The tuner: simulated annealing over worker counts during the run (GA3C, section 4.3).

GA3C's code compares each window with the previous one, never measures the setting it returns to,
and has no windows of fixed length, no noise estimate and no bounds. Here every trial is compared
with the measured rate of the kept setting.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

from aclearn.config.monitor import TunerConfig
from aclearn.control.tuner.decision import Decision
from aclearn.control.tuner.rate_window import RateWindow, Reading
from aclearn.control.tuner.setting_stats import MOST_WINDOWS, OUTLIER, Setting, SettingStats

#: Shortest parts of a window after which a clearly worse or better trial is ended; the least such
#: change, and its standard deviations.
_WORSE_AFTER, _BETTER_AFTER, _LEAST_CHANGE, _EARLY = 1 / 3, 1 / 2, 0.01, 2.5
#: Broken windows, or deaths of roles, that end a trial: a role has few restarts.
_MOST_SETBACKS = 2
#: Windows of a setting before the search ends with it.
_FINAL_WINDOWS = 4
#: Longest wait for the roles to apply counts, in seconds.
_TAKEOVER_S = 30.0


class Tuner:
    """Changes one count at a time and keeps improvements. No thread, no file, no socket, no clock.

    `propose` gives the counts that should run now; `observe` takes samples, several in a window.

    * Trials start once the kept setting has been measured for a window, and half of another.
    * A trial changes one count: doubled, halved, or by a quarter (at least 1), first in the
      direction that raised the rate before.
    * Once the roles have applied it and settled, it is measured over a window, a part of one where
      the change is clear, or more where it is within the noise. Better ones are accepted; worse
      ones with probability exp(change / temperature), which falls with each trial. Of equals the
      smaller count is better.
    * When no neighbour may be better, the best setting is kept and the search freezes. Two windows
      in a row of the kept setting that deviate by more than `restart_search_share` restart it.

    `start` and the upper bounds `most` have the same names; the lower bound is 1. `rng` chooses
    trials and accepts losses. `ValueError` for a count outside its bounds, or no count at all.

    Attributes:
        temperature: now.
        frozen: whether the search has ended.
    """

    def __init__(
        self,
        start: Mapping[str, int],
        most: Mapping[str, int],
        config: TunerConfig,
        rng: random.Random,
    ) -> None:
        if not start or start.keys() != most.keys():
            raise ValueError(f"counts and bounds must have the same names: {start}, {most}")
        for name, count in start.items():
            if not 1 <= count <= most[name]:
                raise ValueError(f"{name}: {count} is not within 1 and {most[name]}")
        self._names = tuple(sorted(start))
        self._config, self._rng = config, rng
        self.temperature, self.frozen = config.temperature, False
        self._kept: Setting = tuple(start[name] for name in self._names)
        self._trial: Setting | None = None
        self._known = SettingStats([most[name] for name in self._names])
        self._window = RateWindow(settle_s=config.settle_s, longest_gap_s=config.longest_gap_s)
        self._setbacks = self._deaths = 0
        self._suspect = 0.0  # deviation of the window before
        self._hint: str | None = None

    @property
    def kept(self) -> dict[str, int]:
        """The counts of the kept setting."""
        return self._named(self._kept)

    def best(self) -> tuple[dict[str, int], float]:
        """The counts known to be the best, and their rate per second, 0 before any measurement.

        Once frozen, this is the kept setting. Before, at a high temperature, it may be worse.
        """
        found = self._kept if self.frozen else self._known.best(self._kept)
        return self._named(found), self._known.of(found).mean

    def propose(self) -> dict[str, int]:
        """The counts that should run now."""
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
        hint: str | None = None,
    ) -> Decision | None:
        """Take a sample; returns the decision, if any.

        Args:
            counts: the running ones; unknown ones are left out.
            incarnation: of the process that counts; another one starts a new window.
            deaths: of roles, so far.
            silence_s: for how long a role may have been dead unnoticed, in seconds; a trial's
                window must be complete before that.
            hint: the count to raise first, if the run's bottleneck is known.
        """
        trial, measured = self._trial, self._trial or self._kept
        running = tuple(counts.get(name, 0) for name in self._names)
        died, self._deaths, self._hint = deaths - self._deaths, deaths, hint
        # a death breaks a trial's window, since short windows would hide its cost; it does not
        # break one of the kept setting, since occasional deaths must not end the tuning
        breaks, runs = trial is not None and died > 0, running == measured
        reading = self._window.observe(
            now, counter, runs=runs, incarnation=incarnation, died=breaks
        )
        if isinstance(reading, str):
            self._setbacks += max(1, died)
            if trial is None or self._setbacks < _MOST_SETBACKS:
                return self._decide("discarded", f"{reading}; measured again", measured)
            decided: Decision | None = self._give_up(trial, f"{reading}, twice")
        elif reading is not None and trial is not None:
            decided = self._judge_trial(trial, reading, silence_s)
        elif reading is not None:
            decided = self._judge_kept(reading)
        elif self._window.waited_s(now) > _TAKEOVER_S:
            decided = self._not_taken_over(measured, running)
        else:
            return None
        if decided is not None:
            # a setting that continues needs no new pause
            runs_on = isinstance(reading, Reading) and (self._trial or self._kept) == measured
            self._window.begin(now, settled=runs_on)
        return decided

    def _judge_kept(self, reading: Reading) -> Decision | None:
        kept, estimate = self._kept, self._known.of(self._kept)
        known, before = self._known.is_known(kept), estimate.windows
        weight = reading.window_s / self._config.every_s
        # half a window shows whether the first one was typical
        if weight < (0.5 if before and not known else 1.0):
            return None
        if before:
            deviation = reading.rate / estimate.mean - 1.0
            noise = self._known.noise_of_change(1.0, before)
            if abs(deviation) > max(self._config.restart_search_share, OUTLIER * noise):
                if known:
                    return self._doubt(reading, deviation)
                self._known.learn(kept, reading.rate, weight, replace=True)
                reason = f"{deviation:+.1%} from the window before, which is forgotten"
                return self._decide("baseline", reason, kept, reading)
        self._suspect = 0.0
        if not (self.frozen and before >= MOST_WINDOWS):
            # when frozen, a full estimate stays fixed, so that a slow change adds up to a restart
            self._known.learn(kept, reading.rate, weight)
        words = f"{self._known.of(kept).windows:.3g} windows"
        if not self._known.is_known(kept):
            return self._decide("baseline", words, kept, reading)
        next_step = "" if self.frozen else self._go_on()
        return self._decide("kept", words + next_step, kept, reading)

    def _doubt(self, reading: Reading, deviation: float) -> Decision:
        """The kept setting deviates; the first deviation may be chance."""
        words = f"{deviation:+.1%} from its estimate"
        before, self._suspect = self._suspect, deviation
        if before * deviation <= 0.0:
            return self._decide("suspect", f"{words}; measured again", self._kept, reading)
        baseline = self._known.of(self._kept).mean
        self._known.forget()
        self._search_from(self._kept)
        self._known.learn(self._kept, reading.rate, reading.window_s / self._config.every_s)
        reason = f"{words}, twice in a row: the machine's load changed, everything is tried again"
        return self._decide("restarted", reason, self._kept, reading, baseline=baseline)

    def _judge_trial(self, trial: Setting, reading: Reading, silence_s: float) -> Decision | None:
        """Judge a trial's window so far; a role may have been dead for its last `silence_s`."""
        heard = (reading.window_s - silence_s) / self._config.every_s
        early, baseline = heard < 1.0, self._known.of(self._kept).mean
        if early and not self._is_clear(reading.rate, heard):
            return None
        self._known.learn(trial, reading.rate, reading.window_s / self._config.every_s)
        gain = self._known.gain(self._kept, trial)
        change, sd = self._known.compare(self._kept, trial)
        words = f"{change:+.1%} ± {sd:.1%}"
        if not early and gain < sd and self._known.is_open(self._kept, trial):
            reason = f"{words} is within the noise; measured again"
            return self._decide("repeat", reason, trial, reading, change=change)
        chance = math.exp(min(0.0, gain) / max(self.temperature, 1e-9))  # Metropolis et al. 1953
        accepted = self._rng.random() < chance
        self._known.learn_slope(self._kept, trial)
        self.temperature *= self._config.cooling
        self._trial = None
        if accepted:
            self._kept = trial
            words += " is better" if gain >= 0.0 else f", accepted by {chance:.0%}"
        else:
            words += " is worse; reverted"
        words += " (seen early)" if early else ""
        # a clear change needs no further window of the kept setting
        if abs(gain) > OUTLIER * sd or self._known.is_known(self._kept):
            words += self._go_on()
        verdict = "accepted" if accepted else "rejected"
        return self._decide(verdict, words, trial, reading, change=change, baseline=baseline)

    def _is_clear(self, rate: float, share: float) -> bool:
        """Whether this share of a trial's window is enough to judge it."""
        if share < _WORSE_AFTER:
            return False
        kept = self._known.of(self._kept)
        change = rate / kept.mean - 1.0
        noise = _EARLY * self._known.noise_of_change(share, kept.windows)
        if change < 0.0:
            return change + noise <= -max(_LEAST_CHANGE, _EARLY * self.temperature)
        # time enough to detect a role that died of the trial
        return share >= _BETTER_AFTER and change - noise >= _LEAST_CHANGE

    def _go_on(self) -> str:
        """Take the next step: a trial, a better setting of before, another window, or the end."""
        if worth := self._known.worth_trying(self._kept):
            raises = {s: v for s, v in worth.items() if self._raises_hint(s) and v >= 0.0} or worth
            most = max(raises.values())
            self._trial = self._rng.choice([s for s, v in raises.items() if v == most])
            self._setbacks = 0
            return ""
        best = self._known.best(self._kept)
        if self._known.gain(self._kept, best) > 0.0:
            change, sd = self._known.compare(self._kept, best)
            self._kept = best
            return f"; {self.kept} was the best ({change:+.1%} ± {sd:.1%})" + self._go_on()
        if self._known.of(self._kept).windows < _FINAL_WINDOWS:
            return ""
        self.frozen = True
        return "; no neighbour is better: frozen"

    def _raises_hint(self, setting: Setting) -> bool:
        hint = self._hint
        return hint in self._names and self._named(setting)[hint] > self.kept[hint]

    def _search_from(self, setting: Setting) -> None:
        self._kept, self._suspect = setting, 0.0
        self.frozen, self.temperature = False, self._config.temperature

    def _give_up(self, trial: Setting, why: str) -> Decision:
        """End a trial that cannot be measured; it is never tried again."""
        self._trial = None
        self._known.unreachable.add(trial)
        return self._decide("given up", f"{why}; reverted", trial)

    def _not_taken_over(self, measured: Setting, running: Setting) -> Decision:
        waited = f"the roles run {self._named(running)} after {_TAKEOVER_S:.3g} s"
        if running == measured:
            waited = f"nothing was counted for {_TAKEOVER_S:.3g} s"
        if self._trial is not None:
            return self._give_up(self._trial, waited)
        self._known.unreachable.discard(running)
        if running == measured or not self._known.is_allowed(running):
            return self._decide("idle", f"{waited}; still waiting", measured)
        self._search_from(running)
        return self._decide("adopted", f"{waited}, so these are kept", measured)

    def _named(self, setting: Setting) -> dict[str, int]:
        return dict(zip(self._names, setting, strict=True))

    def _decide(
        self,
        verdict: str,
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
            baseline=baseline or self._known.of(self._kept).mean or None,
            change=change,
            noise=self._known.noise,
            temperature=self.temperature,
            state="frozen" if self.frozen else "searching",
        )
