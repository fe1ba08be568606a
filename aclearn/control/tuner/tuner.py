"""The tuner: simulated annealing over worker counts while the run goes on (GA3C, section 4.3).

GA3C's paper anneals, its code compares each window with the last one whatever that was, never runs
what it reverts to, and has neither windows of one length nor noise nor bounds. Here the setting
that is kept has an estimate of its own, which every trial is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aclearn.control.tuner.annealing_search import AnnealingSearch
from aclearn.control.tuner.decision import Decision
from aclearn.control.tuner.rate_window import Discarded, RateWindow
from aclearn.control.tuner.setting_stats import Setting, steps_between

#: How much more likely a neighbour is tried first that the waits suggest, or that goes on in the
#: direction that has just paid.
_FAVOUR = 4.0


class Tuner(AnnealingSearch):
    """Moves one count by one at a time and keeps what pays. No thread, no file, no socket.

    `propose` gives the counts that should run now; `observe` takes what runs. Call both in turns,
    several times in a window.

    * Nothing is measured before the counter has risen, and nothing is compared with the kept
      setting before two windows of it agree.
    * A trial runs until the roles have taken it over, `settle_s` more, and then a window of
      `every_s`. Better is accepted; worse with probability exp(change / temperature), and the
      temperature falls with each trial. Of equals the smaller count is better.
    * What is rejected is reverted at once, and the kept setting is measured again before the next
      trial. A neighbour that is known is decided from memory, which costs nothing; so what is known
      to be better may be kept without a trial, however far it is.
    * A role that dies in a trial restarts its window, and the second one ends the trial: it must
      not use up the role's restarts.
    * With the temperature below `FREEZE_AT` and every neighbour known not to be better, nothing is
      tried any more; two windows in a row of the kept setting that deviate by more than
      `restart_search_share` restart the search.

    Args:
        start, most, search: as of `AnnealingSearch`.
        settle_s: pause before a window, in seconds.
        longest_gap_s: between two samples; a longer one discards the window.
        takeover_s: longest wait for the roles to take counts over, in seconds.
    """

    def __init__(
        self,
        start: Mapping[str, int],
        most: Mapping[str, int],
        *,
        settle_s: float,
        longest_gap_s: float,
        takeover_s: float = 30.0,
        **search: Any,
    ) -> None:
        super().__init__(start, most, **search)
        self._most, self._takeover_s = dict(most), takeover_s
        self._deaths = 0
        self._window = RateWindow(settle_s=settle_s, longest_gap_s=longest_gap_s)

    def propose(self, suggested: str | None = None) -> dict[str, int]:
        """The counts that should run now.

        Args:
            suggested: the count to raise, if the run's bottleneck is known: a hint only.
        """
        if self._wants_trial:
            self._begin_trial(suggested)
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
        """Take a sample.

        Args:
            now: when it was taken, in seconds.
            counter: of the objective, cumulative.
            counts: what the roles run; a name that is not known yet is left out.
            incarnation: of the role that counts; another one begins a new window.
            deaths: of roles, so far.
            silence_s: for how long some role may have been dead already, in seconds: a trial is not
                judged by a window that was whole only after it.

        Returns:
            What was decided, oldest first; most samples decide nothing.
        """
        if self._wants_trial:
            return []  # nothing is measured until the caller has asked for the counts
        trial, measured = self._trial, self._trial or self._kept
        running = tuple(counts.get(name, 0) for name in self._names)
        died, self._deaths = deaths - self._deaths, deaths
        # in a whole window of a trial no role dies: else short ones would miss what it costs. What
        # is kept is measured nevertheless: roles that die now and then must not end the tuning
        reading = self._window.observe(
            now,
            counter,
            runs=running == measured,
            incarnation=incarnation,
            died=trial is not None and died > 0,
        )
        # a death that broke the window is one setback, not two
        if trial is not None and self._set_back(max(died, self._window.roles_broke)):
            decided = [self._give_up(trial, "roles died of it, or changed their counts")]
        elif isinstance(reading, Discarded):
            # the window has begun again
            return [self._decide("discarded", f"{reading.reason}; measured again", measured)]
        elif reading is not None:
            decided = (
                self._judge_kept(reading)
                if trial is None
                else self._judge_trial(trial, reading, silence_s)
            )
        elif self._window.waited_s(now) > self._takeover_s:
            decided = [self._not_taken_over(measured, running)]
        else:
            return []
        if decided:
            # what runs on needs no other pause
            runs_on = (self._trial or self._kept) == measured
            self._window.begin(settled=reading is not None and runs_on)
        return decided

    def _begin_trial(self, suggested: str | None) -> None:
        """Try a neighbour of the kept setting; every one that is worth it is possible."""
        self._wants_trial, self._setbacks = False, 0
        fresh, weights = self._known.fresh(self._kept), []
        for setting in fresh:
            [(i, step)] = steps_between(self._kept, setting)
            reasons = [self._names[i] == suggested and step > 0, self._paid == (i, step)]
            weights.append(_FAVOUR ** sum(reasons))
        self._trial = self._rng.choices(fresh, weights)[0]

    def _give_up(self, trial: Setting, why: str) -> Decision:
        """End the trial, which cannot be measured, and never try it again."""
        self._trial = None
        self._known.unreachable.add(trial)
        return self._decide("given up", f"{why}; reverted", trial)

    def _adopt(self, running: Setting, why: str) -> Decision:
        """Keep what runs, since what was kept does not."""
        measured = self._kept
        self._kept, self._suspect, self._paid = running, None, None
        self.frozen, self.temperature = False, self._hot
        return self._decide("adopted", why, measured)

    def _not_taken_over(self, measured: Setting, running: Setting) -> Decision:
        waited = f"the roles run {self._named(running)} after {self._takeover_s:.3g} s"
        if running == measured:
            waited = f"nothing was counted for {self._takeover_s:.3g} s"
        if self._trial is not None:
            return self._give_up(self._trial, waited)
        within = all(1 <= c <= self._most[n] for n, c in zip(self._names, running, strict=True))
        if running == measured or not within:
            return self._decide("idle", f"{waited}; still waiting", measured)
        return self._adopt(running, f"{waited}, so these are kept")
