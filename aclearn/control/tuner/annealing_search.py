"""The tuner's search: what is kept, what is tried next, and what a window's reading decides."""

from __future__ import annotations

import random
from collections import deque

from aclearn.control.tuner.decision import Decision, Verdict
from aclearn.control.tuner.metropolis import choose_trial, metropolis
from aclearn.control.tuner.rate_window import Reading
from aclearn.control.tuner.setting_stats import (
    CLEAR,
    MOST_WINDOWS,
    OUTLIER,
    PRECISE,
    Estimate,
    Setting,
    SettingStats,
)

#: Below this temperature a loss that can be measured is hardly ever accepted.
FREEZE_AT = 0.005
#: Shortest part of a window after which a trial that is clearly worse is ended.
LEAST_WINDOW = 1 / 3
#: Setbacks of a trial, roles that die or windows in which nothing is counted, that end it.
_MOST_SETBACKS = 2
#: Refusals from memory that are told of one window; a temperature that hardly falls has more.
_MOST_RECALLED = 64
#: Windows of the kept setting before anything is compared with it.
_BASELINE_WINDOWS = 2
#: Standard deviations of a change that ends a window early.
_EARLY = 3.0
#: Which count to raise when this role is the bottleneck.
_COUNT_OF_ROLE = {"predictor": "predictors", "trainer": "trainers", "actor": "actors"}


class AnnealingSearch:
    """Simulated annealing over settings, one count by one at a time. Knows no clock: readings in.

    What `runs` says should be measured next, and its reading is for `judge`. With `wants_trial`,
    `begin_trial` must be called first.

    Args:
        start: the setting where the search begins.
        most: upper bounds; the lower bound is 1.
        names: of the counts, in the order of a setting.
        every_s: length of a window, in seconds.
        temperature: relative loss accepted with probability 1/e at the start.
        cooling: factor of the temperature with each trial.
        restart_search_share: deviation of the kept setting's rate that lets it search again.
        rng: chooses trials and accepts losses.
    """

    def __init__(
        self,
        start: Setting,
        most: Setting,
        *,
        names: tuple[str, ...],
        every_s: float,
        temperature: float,
        cooling: float,
        restart_search_share: float,
        rng: random.Random,
    ) -> None:
        self._names, self._most = names, most
        self._every_s, self._restart_share = every_s, restart_search_share
        self._hot, self._cooling, self._rng = temperature, cooling, rng
        self.temperature = temperature
        self.frozen = False
        #: Of the last window that was judged, per second.
        self.rate: float | None = None
        self.kept: Setting = start
        self.trial: Setting | None = None
        #: Whether the kept setting is known, and it is time for a trial.
        self.wants_trial = False
        self._known = SettingStats(most)
        self._setbacks = 0
        self._recalled: deque[Decision] = deque(maxlen=_MOST_RECALLED)
        self._suspect: Reading | None = None
        self._paid: tuple[int, int] | None = None

    @property
    def runs(self) -> Setting:
        """What should run now."""
        return self.trial or self.kept

    @property
    def estimate(self) -> Estimate:
        """What is known of the kept setting."""
        return self._known.of(self.kept)

    @property
    def noise(self) -> float:
        """Relative standard deviation of a full window."""
        return self._known.noise.sd

    def best(self) -> tuple[Setting, float] | None:
        """The setting known to be the best, and its rate per second; None while none is known.

        What is kept, once frozen; before that what was read best, in at least two windows where
        there is any such: while it is hot, what is kept may be worse.
        """
        # after a change so large that all before is forgotten, only one window is known
        known = self._known.measured(_BASELINE_WINDOWS) or self._known.measured(LEAST_WINDOW)
        if not known:
            return None
        frozen_at = self.frozen and self.kept in known
        best = self.kept if frozen_at else max(known, key=self._known.rate)
        return best, self._known.rate(best)

    def begin_trial(self, bottleneck: str | None = None) -> None:
        """Choose a neighbour of the kept setting to try.

        Args:
            bottleneck: the role that holds the run up, if one is known: a hint only.
        """
        self.wants_trial = False
        favoured = _COUNT_OF_ROLE.get(bottleneck or "")
        index = self._names.index(favoured) if favoured in self._names else None
        fresh = self._known.fresh(self.kept)
        self.trial = choose_trial(self.kept, fresh, index, self._paid, self._rng)
        self._setbacks = 0

    def set_back(self, times: int) -> bool:
        """Count setbacks of the trial, roles that died or silent windows; True ends it."""
        self._setbacks += times
        return self._setbacks >= _MOST_SETBACKS

    def give_up(self, why: str) -> Decision:
        """End the trial, which cannot be measured, and never try it again."""
        assert self.trial is not None  # who asks has looked
        trial, self.trial = self.trial, None
        self._known.unreachable.add(trial)
        return self.decide("given up", f"{why}; reverted", trial, None)

    def adopt(self, running: Setting, why: str) -> Decision:
        """Keep what runs, since what was kept does not."""
        measured = self.kept
        self.kept, self._suspect, self._paid = running, None, None
        self.frozen, self.temperature = False, self._hot
        return self.decide("adopted", why, measured, None)

    def named(self, setting: Setting) -> dict[str, int]:
        """A setting as counts by name."""
        return dict(zip(self._names, setting, strict=True))

    def judge(self, reading: Reading, *, silence_s: float = 0.0) -> list[Decision]:
        """What the window of what runs says so far; most say nothing before it is whole.

        Args:
            reading: the window.
            silence_s: as many seconds at the end of a trial's do not count.
        """
        if self.trial is not None:
            early = reading.window_s - silence_s < self._every_s
            return self._judge_trial(self.trial, reading, early=early)
        return self._judge_kept(reading) if reading.window_s >= self._every_s else []

    def decide(
        self,
        verdict: Verdict,
        reason: str,
        measured: Setting,
        reading: Reading | None,
        *,
        change: float | None = None,
        baseline: float | None = None,
    ) -> Decision:
        """A decision on what was measured, with what is known now."""
        estimate = self.estimate
        if baseline is None and estimate.windows:
            baseline = estimate.mean
        return Decision(
            verdict=verdict,
            reason=reason,
            counts=self.named(measured),
            kept=self.named(self.kept),
            rate=reading.rate if reading else None,
            window_s=reading.window_s if reading else None,
            baseline=baseline,
            change=change,
            noise=self._known.noise.sd,
            temperature=self.temperature,
            state="frozen" if self.frozen else "searching",
        )

    def _judge_kept(self, reading: Reading) -> list[Decision]:
        kept, estimate = self.kept, self.estimate
        weight = reading.window_s / self._every_s
        self.rate = reading.rate
        known = estimate.windows >= _BASELINE_WINDOWS
        if not known and reading.rate <= 0.0:
            return [self.decide("idle", "nothing was counted: no decision", kept, reading)]
        if estimate.windows:
            deviation = reading.rate / estimate.mean - 1.0
            noise = self._known.noise.of_change(1.0, estimate.windows)
            # a window in which nothing was counted is never noise: no estimate may come to zero
            nothing = reading.rate <= 0.0
            if nothing or abs(deviation) > max(self._restart_share, OUTLIER * noise):
                if known:
                    return [self._doubt(reading, deviation)]
                self._known.restart(kept, reading.rate, weight)
                reason = f"{deviation:+.1%} from the window before, which is forgotten"
                return [self.decide("baseline", reason, kept, reading)]
        self._suspect = None
        if not (self.frozen and estimate.windows >= MOST_WINDOWS):
            # frozen, it stands still in the end: else a slow change would never add up to a thaw
            self._known.learn(kept, reading.rate, weight)
        known = self.estimate.windows >= _BASELINE_WINDOWS
        words = f"{self.estimate.windows:.3g} windows"
        if known and not self.frozen:
            words += self._go_on()
        verdict: Verdict = "kept" if known else "baseline"
        return [*self._take_recalled(), self.decide(verdict, words, kept, reading)]

    def _judge_trial(self, trial: Setting, reading: Reading, *, early: bool) -> list[Decision]:
        kept, noise = self.estimate, self._known.noise
        weight = reading.window_s / self._every_s
        so_far = reading.rate / kept.mean - 1.0
        if early and (
            weight < LEAST_WINDOW
            or so_far + _EARLY * noise.of_change(weight, kept.windows)
            > -max(_EARLY * self.temperature, PRECISE)
        ):
            return []
        self.rate = reading.rate
        if reading.rate <= 0.0:
            return [self._judge_silent(trial, reading)]
        self._known.learn(trial, reading.rate, weight)
        estimate = self._known.of(trial)
        change, sd = self._known.compare(self.kept, trial)
        words = f"{change:+.1%} ± {sd:.1%}"
        fuzzy = abs(change) < CLEAR * sd and sd > max(self.temperature, PRECISE)
        if fuzzy and estimate.windows < self._known.enough_windows:
            reason = f"{words} is within the noise; measured again"
            return [self.decide("repeat", reason, trial, reading, change=change)]
        gain = change - self._known.cost(self.kept, trial)
        chance = self._chance(gain)
        accepted = gain >= 0.0 or self._rng.random() < chance
        self.temperature *= self._cooling
        baseline = kept.mean
        self.trial = None
        if not accepted:
            reason = f"{words} is worse" + (", seen early" if early else "") + "; reverted"
            return [self.decide("rejected", reason, trial, reading, change=change)]
        self._move(trial)
        if change > self._restart_share:
            # may also be another user of the machine who left: what is known may hold no more
            self._known.forget(but=trial)
        reason = f"{words} is better" if gain >= 0.0 else f"{words}, accepted by {chance:.0%}"
        if estimate.windows >= _BASELINE_WINDOWS:
            reason += self._go_on()
        accept = self.decide("accepted", reason, trial, reading, change=change, baseline=baseline)
        return [*self._take_recalled(), accept]

    def _doubt(self, reading: Reading, deviation: float) -> Decision:
        """The kept setting deviates: the first time it may be chance."""
        words = f"{deviation:+.1%} from its estimate"
        first, self._suspect = self._suspect, reading
        baseline = self.estimate.mean
        if first is None or (first.rate > baseline) != (reading.rate > baseline):
            return self.decide("suspect", f"{words}; measured again", self.kept, reading)
        self._suspect = None
        self._known.forget()
        self.frozen, self.temperature = False, self._hot
        for seen in (first, reading):
            if seen.rate > 0.0:
                self._known.learn(self.kept, seen.rate, seen.window_s / self._every_s)
        reason = f"{words}, twice in a row: the machine's load changed, everything is tried anew"
        return self.decide("restarted", reason, self.kept, reading, baseline=baseline)

    def _judge_silent(self, trial: Setting, reading: Reading) -> Decision:
        """A trial under which nothing was counted: the first time it may be a disk that hung.

        The second time it is not kept at any temperature, nor tried again: whatever is kept is what
        others are compared with, and nothing can be compared with zero.
        """
        if not self.set_back(1):
            reason = "nothing was counted; measured again"
            return self.decide("repeat", reason, trial, reading, change=-1.0)
        self._known.unreachable.add(trial)
        self.temperature *= self._cooling
        self.trial = None
        reason = "nothing was counted; reverted"
        return self.decide("rejected", reason, trial, reading, change=-1.0)

    def _go_on(self) -> str:
        """What to do next, once the kept setting is known: a trial, a move from memory, nothing."""
        if self._known.fresh(self.kept):
            self.wants_trial = True
            return ""
        others = [s for s in self._known.neighbours(self.kept) if s not in self._known.unreachable]
        for other in sorted(others, key=self._known.rate, reverse=True):
            change, sd = self._known.compare(self.kept, other)
            if change - self._known.cost(self.kept, other) > sd:
                return self._move_from_memory(other, "is better after all")
        while self.temperature >= FREEZE_AT and others:
            other = self._rng.choice(others)
            change, sd = self._known.compare(self.kept, other)
            self.temperature *= self._cooling
            if self._rng.random() < self._chance(change - self._known.cost(self.kept, other)):
                return self._move_from_memory(other, "is accepted from memory")
            reason = f"{change:+.1%} ± {sd:.1%} from memory is worse"
            self._recalled.append(self.decide("recalled", reason, other, None, change=change))
            if self._cooling >= 1.0:
                return ""
        best = max(self._known.measured(0.0), key=self._known.rate)
        change, sd = self._known.compare(self.kept, best) if best != self.kept else (0.0, 0.0)
        if change > CLEAR * sd and best not in self._known.unreachable:
            return self._move_from_memory(best, "was the best")
        self.frozen = True
        return "; no neighbour is better: frozen"

    def _take_recalled(self) -> list[Decision]:
        recalled = list(self._recalled)
        self._recalled.clear()
        return recalled

    def _move_from_memory(self, other: Setting, why: str) -> str:
        change, sd = self._known.compare(self.kept, other)
        self._move(other)
        return f"; {self.named(other)} {why} ({change:+.1%} ± {sd:.1%})"

    def _move(self, to: Setting) -> None:
        """Keep another setting."""
        steps = [b - a for a, b in zip(self.kept, to, strict=True)]
        moved = [(i, step) for i, step in enumerate(steps) if step]
        self._paid = moved[0] if len(moved) == 1 else None
        self.kept, self._suspect = to, None

    def _chance(self, gain: float) -> float:
        return metropolis(gain, self.temperature)
