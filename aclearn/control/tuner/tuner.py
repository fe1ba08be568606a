"""The tuner: simulated annealing over worker counts while the run goes on (GA3C, section 4.3).

GA3C's paper anneals, its code compares each window with the last one whatever that was, never runs
what it reverts to, and has neither windows of one length nor noise nor bounds. Here the setting
that is kept has an estimate of its own, which every trial is compared with.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from aclearn.control.tuner.annealing_search import AnnealingSearch
from aclearn.control.tuner.decision import Decision
from aclearn.control.tuner.rate_window import Discarded, RateWindow
from aclearn.control.tuner.setting_stats import Estimate, Setting


class Tuner:
    """Moves one count by one at a time and keeps what pays. No thread, no file, no socket.

    `propose` gives the counts that should run now; `observe` takes what runs. Call both in turns,
    several times in a window:

        for decision in tuner.observe(now, learned_steps, counts):
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
    restarts. With the temperature below `FREEZE_AT` of the search and every neighbour known not to
    be better, nothing is tried any more; the kept setting is only watched, and two windows in a row
    that deviate by more than `restart_search_share` make it search anew.

    Args:
        start: count by name; where the search begins.
        most: upper bound by name, for the same names; the lower bound is 1.
        every_s: length of a window, in seconds.
        settle_s: pause before it, in seconds.
        longest_gap_s: between two samples; a longer one discards the window.
        temperature: relative loss accepted with probability 1/e at the start; 0 accepts none.
        cooling: factor of the temperature with each trial.
        restart_search_share: deviation of the kept setting's rate that lets it search again.
        takeover_s: longest wait for the roles to take counts over, in seconds.
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
        self._search = AnnealingSearch(
            tuple(start[name] for name in self._names),
            tuple(most[name] for name in self._names),
            names=self._names,
            every_s=every_s,
            temperature=temperature,
            cooling=cooling,
            restart_search_share=restart_search_share,
            rng=rng,
        )
        self._most, self._takeover_s = dict(most), takeover_s
        self._deaths = 0
        self._window = RateWindow(settle_s=settle_s, longest_gap_s=longest_gap_s)

    @property
    def kept(self) -> dict[str, int]:
        """The best counts known so far."""
        return self._search.named(self._search.kept)

    @property
    def kept_estimate(self) -> Estimate:
        """What is known of them; no windows when they have not been measured yet."""
        return self._search.estimate

    @property
    def temperature(self) -> float:
        """Relative loss that is accepted with probability 1/e now."""
        return self._search.temperature

    @temperature.setter
    def temperature(self, temperature: float) -> None:
        self._search.temperature = temperature

    @property
    def frozen(self) -> bool:
        """Whether nothing is tried any more."""
        return self._search.frozen

    @property
    def rate(self) -> float | None:
        """Of the last window that was judged, per second."""
        return self._search.rate

    @property
    def noise(self) -> float:
        """Relative standard deviation of a full window."""
        return self._search.noise

    def best(self) -> tuple[dict[str, int], float] | None:
        """The counts known to be the best, and their rate per second; None while none are known.

        See `AnnealingSearch.best`.
        """
        best = self._search.best()
        return None if best is None else (self._search.named(best[0]), best[1])

    def propose(self, bottleneck: str | None = None) -> dict[str, int]:
        """The counts that should run now.

        Args:
            bottleneck: the role that holds the run up, if one is known: a hint only.
        """
        if self._search.wants_trial:
            self._search.begin_trial(bottleneck)
            self._window.begin()
        return self._search.named(self._search.runs)

    def observe(
        self,
        now: float,
        counter: int,
        counts: Mapping[str, int],
        *,
        source: str = "",
        deaths: int = 0,
        silence_s: float = 0.0,
    ) -> list[Decision]:
        """Take a sample.

        Args:
            now: when it was taken, in seconds.
            counter: of the objective, cumulative.
            counts: what the roles run; a name that is not known yet is left out.
            source: incarnation of who counts; another one begins a window anew.
            deaths: of roles, so far.
            silence_s: for how long some role may have been dead already, in seconds: a trial is not
                judged by a window that was whole only after it.

        Returns:
            What was decided, oldest first; most samples decide nothing.
        """
        search = self._search
        if search.wants_trial:
            return []  # nothing is measured until somebody asks what should run
        measured = search.runs
        running = tuple(counts.get(name, 0) for name in self._names)
        died, self._deaths = deaths - self._deaths, deaths
        trial = search.trial is not None
        # in a whole window of a trial nobody dies: else short ones would miss what it costs. What
        # is kept is measured nevertheless: roles that die now and then must not end the tuning
        reading = self._window.observe(
            now, counter, runs=running == measured, source=source, died=trial and died > 0
        )
        # a death that broke the window is one setback, not two
        if trial and search.set_back(max(died, self._window.roles_broke)):
            decided = [search.give_up("roles died of it, or changed their counts")]
        elif isinstance(reading, Discarded):
            # the window has begun again
            return [search.decide("discarded", f"{reading.reason}; measured again", measured, None)]
        elif reading is not None:
            decided = search.judge(reading, silence_s=silence_s)
        elif self._window.waited_s(now) > self._takeover_s:
            decided = [self._not_taken_over(measured, running)]
        else:
            return []
        if decided:
            # what runs on needs no other pause
            self._window.begin(settled=reading is not None and search.runs == measured)
        return decided

    def _not_taken_over(self, measured: Setting, running: Setting) -> Decision:
        search = self._search
        waited = f"the roles run {search.named(running)} after {self._takeover_s:.3g} s"
        if running == measured:
            waited = f"nothing was counted for {self._takeover_s:.3g} s"
        if search.trial is not None:
            return search.give_up(waited)
        within = all(1 <= c <= self._most[n] for n, c in zip(self._names, running, strict=True))
        if running == measured or not within:
            return search.decide("idle", f"{waited}; still waiting", measured, None)
        return search.adopt(running, f"{waited}, so these are kept")
