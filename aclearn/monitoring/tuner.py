"""The tuner: simulated annealing over worker counts while the run goes on (GA3C, section 4.3).

GA3C's paper anneals, its code compares each window with the last one whatever that was, never runs
what it reverts to, and has neither windows of one length nor noise nor bounds. Here the setting
that is kept has an estimate of its own, which every trial is compared with.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping

from aclearn.monitoring.tuner_choice import choose_trial, metropolis
from aclearn.monitoring.tuner_decision import Decision, Verdict
from aclearn.monitoring.tuner_estimates import (
    CLEAR,
    MOST_WINDOWS,
    OUTLIER,
    PRECISE,
    Estimate,
    Landscape,
    Setting,
)
from aclearn.monitoring.tuner_window import Discarded, RateWindow, Reading

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


class Tuner:
    """Moves one count by one at a time and keeps what pays. No thread, no file, no socket.

    `propose` gives the counts that should run now; `observe` takes what runs. Call both in turns,
    several times in a window:

        for decision in tuner.observe(learned_steps, counts):
            log(decision)
        wanted = tuner.propose(bottleneck)

    Nothing is measured before the counter has risen, and nothing is compared with the kept setting
    before two windows of it agree. A trial runs until the roles have taken it over, `settle_s`
    more, and then a window of `every_s`. Better is accepted; worse with probability
    exp(change / temperature) (Metropolis et al. 1953), and the temperature falls with each trial.
    Of equals the smaller count is better: a worker more must pay. What is rejected is reverted at
    once, and the kept setting is measured again before the next trial. Estimates are remembered: a
    neighbour that is known to be worse is decided from memory, which costs nothing, and so what
    is known to be better may be kept without a trial, however far it is. A role that dies in a
    trial begins its window anew, and the second one ends it: it must not use up the role's
    restarts. Below `FREEZE_AT`, with every neighbour known not to be better, nothing is tried any
    more; the kept setting is only watched, and two windows in a row that deviate by more than
    `thaw_share` make it search anew.

    Args:
        start: count by name; where the search begins.
        most: upper bound by name, for the same names; the lower bound is 1.
        every_s: length of a window, in seconds.
        settle_s: pause before it, in seconds.
        longest_gap_s: between two samples; a longer one discards the window.
        temperature: relative loss accepted with probability 1/e at the start; 0 accepts none.
        cooling: factor of the temperature with each trial.
        thaw_share: deviation of the kept setting's rate that lets it search again.
        takeover_s: longest wait for the roles to take counts over, in seconds.
        clock: seconds.
        rng: chooses trials and accepts losses.

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
        thaw_share: float,
        clock: Callable[[], float],
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
        self._every_s, self._takeover_s, self._thaw_share = every_s, takeover_s, thaw_share
        self._hot, self._cooling = temperature, cooling
        self._clock, self._rng = clock, rng
        self.temperature = temperature
        self.frozen = False
        self.rate: float | None = None
        self._known = Landscape(self._most)
        self._kept: Setting = tuple(start[name] for name in self._names)
        self._trial: Setting | None = None
        self._setbacks = self._deaths = 0
        self._recalled: deque[Decision] = deque(maxlen=_MOST_RECALLED)
        self._suspect: Reading | None = None
        self._paid: tuple[int, int] | None = None
        self._choose = False
        self._window = RateWindow(settle_s=settle_s, longest_gap_s=longest_gap_s)

    @property
    def kept(self) -> dict[str, int]:
        """The best counts known so far."""
        return self._named(self._kept)

    @property
    def kept_estimate(self) -> Estimate:
        """What is known of them; no windows when they have not been measured yet."""
        return self._known.of(self._kept)

    @property
    def noise(self) -> float:
        """Relative standard deviation of a full window."""
        return self._known.noise.sd

    def best(self) -> tuple[dict[str, int], float] | None:
        """The counts known to be the best, and their rate per second; None while none are known.

        What is kept, once frozen; before that what was read best, in at least two windows where
        there is any such: while it is hot, what is kept may be worse.
        """
        # after a change so large that all before is forgotten, only one window is known
        known = self._known.measured(_BASELINE_WINDOWS) or self._known.measured(LEAST_WINDOW)
        if not known:
            return None
        frozen_at = self.frozen and self._kept in known
        best = self._kept if frozen_at else max(known, key=self._known.rate)
        return self._named(best), self._known.rate(best)

    def propose(self, bottleneck: str | None = None) -> dict[str, int]:
        """The counts that should run now.

        Args:
            bottleneck: the role that holds the run up, if one is known: a hint only.
        """
        if self._choose:
            self._choose = False
            favoured = _COUNT_OF_ROLE.get(bottleneck or "")
            index = self._names.index(favoured) if favoured in self._names else None
            fresh = self._known.fresh(self._kept)
            self._trial = choose_trial(self._kept, fresh, index, self._paid, self._rng)
            self._setbacks = 0
            self._window.begin()
        return self._named(self._trial or self._kept)

    def observe(
        self,
        counter: int,
        counts: Mapping[str, int],
        *,
        source: str = "",
        deaths: int = 0,
        silence_s: float = 0.0,
    ) -> list[Decision]:
        """Take a sample.

        Args:
            counter: of the objective, cumulative.
            counts: what the roles run; a name that is not known yet is left out.
            source: incarnation of who counts; another one begins a window anew.
            deaths: of roles, so far.
            silence_s: for how long some role may have been dead already, in seconds: a trial is not
                judged by a window that was whole only after it.

        Returns:
            What was decided, oldest first; most samples decide nothing.
        """
        if self._choose:
            return []  # nothing is measured until somebody asks what should run
        now = self._clock()
        measured = self._trial or self._kept
        running = tuple(counts.get(name, 0) for name in self._names)
        died, self._deaths = deaths - self._deaths, deaths
        # in a whole window of a trial nobody dies: else short ones would miss what it costs. What
        # is kept is measured nevertheless: roles that die now and then must not end the tuning
        reading = self._window.observe(
            now,
            counter,
            runs=running == measured,
            source=source,
            died=self._trial is not None and died > 0,
        )
        # a death that broke the window is one setback, not two
        if self._trial is not None and (setbacks := max(died, self._window.roles_broke)):
            self._setbacks += setbacks
            if self._setbacks >= _MOST_SETBACKS:
                return [self._give_up(self._trial, "roles died of it, or changed their counts")]
        if isinstance(reading, Discarded):
            return [self._decide("discarded", f"{reading.reason}; measured again", measured, None)]
        if reading is None:
            if self._window.waited_s(now) > self._takeover_s:
                return self._not_taken_over(measured, running)
            return []
        if self._trial is None:
            return self._judge_kept(reading) if reading.window_s >= self._every_s else []
        return self._judge_trial(self._trial, reading, silence_s)

    def _not_taken_over(self, measured: Setting, running: Setting) -> list[Decision]:
        waited = f"the roles run {self._named(running)} after {self._takeover_s:.3g} s"
        if running == measured:
            waited = f"nothing was counted for {self._takeover_s:.3g} s"
        if self._trial is not None:
            return [self._give_up(self._trial, waited)]
        self._window.begin()
        within = all(1 <= c <= m for c, m in zip(running, self._most, strict=True))
        if running == measured or not within:
            return [self._decide("idle", f"{waited}; still waiting", measured, None)]
        self._kept, self._suspect, self._paid = running, None, None
        self.frozen, self.temperature = False, self._hot
        return [self._decide("adopted", f"{waited}, so these are kept", measured, None)]

    def _give_up(self, trial: Setting, why: str) -> Decision:
        self._window.begin()
        self._trial = None
        self._known.unreachable.add(trial)
        return self._decide("given up", f"{why}; reverted", trial, None)

    def _judge_kept(self, reading: Reading) -> list[Decision]:
        kept, estimate = self._kept, self.kept_estimate
        weight = reading.window_s / self._every_s
        self.rate = reading.rate
        self._window.begin(settled=True)
        known = estimate.windows >= _BASELINE_WINDOWS
        if not known and reading.rate <= 0.0:
            return [self._decide("idle", "nothing was counted: no decision", kept, reading)]
        if estimate.windows:
            deviation = reading.rate / estimate.mean - 1.0
            noise = self._known.noise.of_change(1.0, estimate.windows)
            # a window in which nothing was counted is never noise: no estimate may come to zero
            nothing = reading.rate <= 0.0
            if nothing or abs(deviation) > max(self._thaw_share, OUTLIER * noise):
                if known:
                    return [self._doubt(reading, deviation)]
                self._known.restart(kept, reading.rate, weight)
                reason = f"{deviation:+.1%} from the window before, which is forgotten"
                return [self._decide("baseline", reason, kept, reading)]
        self._suspect = None
        if not (self.frozen and estimate.windows >= MOST_WINDOWS):
            # frozen, it stands still in the end: else a slow change would never add up to a thaw
            self._known.learn(kept, reading.rate, weight)
        known = self.kept_estimate.windows >= _BASELINE_WINDOWS
        words = f"{self.kept_estimate.windows:.3g} windows"
        if known and not self.frozen:
            words += self._go_on()
        verdict: Verdict = "kept" if known else "baseline"
        return [*self._take_recalled(), self._decide(verdict, words, kept, reading)]

    def _doubt(self, reading: Reading, deviation: float) -> Decision:
        """The kept setting deviates: the first time it may be chance."""
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
        reason = f"{words}, twice in a row: the machine's load changed, everything is tried anew"
        return self._decide("thawed", reason, self._kept, reading, baseline=baseline)

    def _judge_trial(self, trial: Setting, reading: Reading, silence_s: float) -> list[Decision]:
        kept, noise = self.kept_estimate, self._known.noise
        weight = reading.window_s / self._every_s
        so_far = reading.rate / kept.mean - 1.0
        early = reading.window_s - silence_s < self._every_s
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
        change, sd = self._known.compare(self._kept, trial)
        words = f"{change:+.1%} ± {sd:.1%}"
        fuzzy = abs(change) < CLEAR * sd and sd > max(self.temperature, PRECISE)
        if fuzzy and estimate.windows < self._known.enough_windows:
            self._window.begin(settled=True)
            reason = f"{words} is within the noise; measured again"
            return [self._decide("repeat", reason, trial, reading, change=change)]
        gain = change - self._known.cost(self._kept, trial)
        chance = self._chance(gain)
        accepted = gain >= 0.0 or self._rng.random() < chance
        self.temperature *= self._cooling
        baseline = kept.mean
        self._trial = None
        if not accepted:
            self._window.begin()
            reason = f"{words} is worse" + (", seen early" if early else "") + "; reverted"
            return [self._decide("rejected", reason, trial, reading, change=change)]
        self._move(trial)
        if change > self._thaw_share:
            # may also be another user of the machine who left: what is known may hold no more
            self._known.forget(but=trial)
        reason = f"{words} is better" if gain >= 0.0 else f"{words}, accepted by {chance:.0%}"
        self._window.begin(settled=True)
        if estimate.windows >= _BASELINE_WINDOWS:
            reason += self._go_on()
        accept = self._decide("accepted", reason, trial, reading, change=change, baseline=baseline)
        return [*self._take_recalled(), accept]

    def _judge_silent(self, trial: Setting, reading: Reading) -> Decision:
        """A trial under which nothing was counted: the first time it may be a disk that hung.

        The second time it is not kept at any temperature, nor tried again: whatever is kept is what
        others are compared with, and nothing can be compared with zero.
        """
        self._setbacks += 1
        if self._setbacks < _MOST_SETBACKS:
            self._window.begin(settled=True)
            reason = "nothing was counted; measured again"
            return self._decide("repeat", reason, trial, reading, change=-1.0)
        self._known.unreachable.add(trial)
        self.temperature *= self._cooling
        self._trial = None
        self._window.begin()
        reason = "nothing was counted; reverted"
        return self._decide("rejected", reason, trial, reading, change=-1.0)

    def _go_on(self) -> str:
        """What to do next, once the kept setting is known: a trial, a move from memory, nothing."""
        if self._known.fresh(self._kept):
            self._choose = True
            return ""
        others = [s for s in self._known.neighbours(self._kept) if s not in self._known.unreachable]
        for other in sorted(others, key=self._known.rate, reverse=True):
            change, sd = self._known.compare(self._kept, other)
            if change - self._known.cost(self._kept, other) > sd:
                return self._move_from_memory(other, "is better after all")
        while self.temperature >= FREEZE_AT and others:
            other = self._rng.choice(others)
            change, sd = self._known.compare(self._kept, other)
            self.temperature *= self._cooling
            if self._rng.random() < self._chance(change - self._known.cost(self._kept, other)):
                return self._move_from_memory(other, "is accepted from memory")
            reason = f"{change:+.1%} ± {sd:.1%} from memory is worse"
            self._recalled.append(self._decide("recalled", reason, other, None, change=change))
            if self._cooling >= 1.0:
                return ""
        best = max(self._known.measured(0.0), key=self._known.rate)
        change, sd = self._known.compare(self._kept, best) if best != self._kept else (0.0, 0.0)
        if change > CLEAR * sd and best not in self._known.unreachable:
            return self._move_from_memory(best, "was the best")
        self.frozen = True
        return "; no neighbour is better: frozen"

    def _take_recalled(self) -> list[Decision]:
        recalled = list(self._recalled)
        self._recalled.clear()
        return recalled

    def _move_from_memory(self, other: Setting, why: str) -> str:
        change, sd = self._known.compare(self._kept, other)
        self._move(other)
        self._window.begin()
        return f"; {self._named(other)} {why} ({change:+.1%} ± {sd:.1%})"

    def _move(self, to: Setting) -> None:
        """Keep another setting."""
        steps = [b - a for a, b in zip(self._kept, to, strict=True)]
        moved = [(i, step) for i, step in enumerate(steps) if step]
        self._paid = moved[0] if len(moved) == 1 else None
        self._kept, self._suspect = to, None

    def _chance(self, gain: float) -> float:
        return metropolis(gain, self.temperature)

    def _named(self, setting: Setting) -> dict[str, int]:
        return dict(zip(self._names, setting, strict=True))

    def _decide(
        self,
        verdict: Verdict,
        reason: str,
        measured: Setting,
        reading: Reading | None,
        *,
        change: float | None = None,
        baseline: float | None = None,
    ) -> Decision:
        estimate = self.kept_estimate
        if baseline is None and estimate.windows:
            baseline = estimate.mean
        return Decision(
            verdict=verdict,
            reason=reason,
            counts=self._named(measured),
            kept=self.kept,
            rate=reading.rate if reading else None,
            window_s=reading.window_s if reading else None,
            baseline=baseline,
            change=change,
            noise=self._known.noise.sd,
            temperature=self.temperature,
            state="frozen" if self.frozen else "searching",
        )
