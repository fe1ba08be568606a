"""The tuner: simulated annealing over worker counts during the run (GA3C, section 4.3).

GA3C's code compares each window with the previous one, never measures the setting it returns to,
and has no windows of fixed length, no noise estimate and no bounds. Here every trial is compared
with an estimate of the kept setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aclearn.control.tuner.annealing_search import AnnealingSearch
from aclearn.control.tuner.decision import Decision
from aclearn.control.tuner.rate_window import Discarded, RateWindow
from aclearn.control.tuner.setting_stats import Setting, steps_between

#: Factor of a window's value in the direction that the bottleneck suggests.
_FAVOUR = 4.0


class Tuner(AnnealingSearch):
    """Changes one count at a time and keeps improvements. No thread, no file, no socket.

    `propose` gives the counts that should run now; `observe` takes samples. Call both in turns,
    several times in a window.

    * Measurement starts once the counter has risen; trials start once two windows of the kept
      setting agree.
    * A trial changes one count: doubled, halved, or by a quarter (at least 1). The one whose window
      promises most is tried first, by a model of all rates measured so far (`RateModel`).
    * A trial waits until the roles have applied it, then `settle_s`, then measures a window of
      `every_s`, or a part of it where the change is clear. Better ones are accepted; worse ones
      with probability exp(change / temperature). The temperature falls with each trial. Of equals
      the smaller count is better.
    * A rejected trial is reverted at once. The next one starts from the kept setting.
    * A death of a role restarts a trial's window; a second one ends the trial, since a role has few
      restarts.
    * When no window of a neighbour promises enough, the best setting is kept and the search
      freezes. Two windows in a row of the kept setting that deviate by more than
      `restart_search_share` restart it.

    Args:
        start, most, search: as of `AnnealingSearch`.
        settle_s: pause before a window, in seconds.
        longest_gap_s: between two samples; a longer one discards the window.
        takeover_s: longest wait for the roles to apply counts, in seconds.
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
        """Take a sample; returns the decisions, oldest first; usually there are none.

        Args:
            now: time of the sample, in seconds.
            counter: of the objective, cumulative.
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
            # a setting that continues needs no new pause
            runs_on = (self._trial or self._kept) == measured
            self._window.begin(settled=reading is not None and runs_on)
        return decided

    def _begin_trial(self, suggested: str | None) -> None:
        """Try the neighbour whose window has the highest value."""
        self._wants_trial, self._setbacks = False, 0
        worth = self._known.worth_trying(self._kept)
        for setting in worth:
            [(i, step)] = steps_between(self._kept, setting)
            if self._names[i] == suggested and step > 0:
                worth[setting] *= _FAVOUR
        most = max(worth.values())
        self._trial = self._rng.choice([s for s, value in worth.items() if value > 0.99 * most])

    def _give_up(self, trial: Setting, why: str) -> Decision:
        """End a trial that cannot be measured; it is never tried again."""
        self._trial = None
        self._known.unreachable.add(trial)
        return self._decide("given up", f"{why}; reverted", trial)

    def _adopt(self, running: Setting, why: str) -> Decision:
        """Keep the running counts, since the kept ones cannot be applied."""
        measured = self._kept
        self._kept, self._suspect = running, None
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
