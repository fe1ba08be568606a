"""Rules that `tuner.py` compares with aclearn's tuner: a sweep and GA3C's rule."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


class Rule:
    """The interface that `aclearn.control.tuner.plugin` expects of a tuner.

    Args:
        start: count by name.
        most: bounds.
        every_s: length of a window.
        settle_s: pause before it; GA3C's has none.
        rng: draws.
    """

    temperature, frozen = 0.0, False
    #: The unit of its rate, as `tuner.objective`.
    objective = "learned_steps"

    def __init__(
        self,
        start: Mapping[str, int],
        most: Mapping[str, int],
        *,
        every_s: float,
        settle_s: float,
        rng: random.Random,
        **others: Any,
    ) -> None:
        self.counts, self.most, self.rng = dict(start), dict(most), rng
        self._every_s, self._settle_s = every_s, settle_s
        self.rate: float | None = None
        self._ready_at: float | None = None
        self._began: tuple[float, int] | None = None

    def propose(self, bottleneck: str | None = None) -> dict[str, int]:
        """The counts to run now."""
        return dict(self.counts)

    def best(self) -> None:
        """None: no counts are remembered."""

    def observe(
        self, now: float, counter: int, counts: Mapping[str, int], **others: Any
    ) -> list[Any]:
        """Take a sample; at the end of a window `next` decides."""
        from aclearn.control.tuner.decision import Decision

        runs = all(counts.get(name) == count for name, count in self.counts.items())
        found = self._measure(now, counter, runs)
        if found is None:
            return []
        self.rate, window_s = found
        measured = dict(self.counts)
        verdict, reason = self.next(round(self.rate * window_s))
        kept = dict(self.kept())
        return [
            Decision(
                verdict=verdict,
                reason=reason,
                counts=measured,
                kept=kept,
                rate=self.rate,
                window_s=window_s,
                baseline=None,
                change=None,
                noise=0.0,
                temperature=0.0,
                state="searching",
            )
        ]

    def _measure(self, now: float, counter: int, runs: bool) -> tuple[float, float] | None:
        """Rate and length in seconds of a finished window."""
        if not runs:
            self._ready_at = None
            return None
        if self._ready_at is None:
            self._ready_at, self._began = now + self._settle_s, None
        if now < self._ready_at:
            return None
        if self._began is None:
            self._began = now, counter
            return None
        window_s = now - self._began[0]
        if window_s < self._every_s:
            return None
        rate = (counter - self._began[1]) / window_s
        self._began = self._ready_at = None
        return rate, window_s

    def kept(self) -> Mapping[str, int]:
        """The counts that the rule keeps at present."""
        return self.counts

    def next(self, count: int) -> tuple[Any, str]:
        """Choose the next counts after a window in which the counter rose by `count`."""
        raise NotImplementedError


class Sweep(Rule):
    """Every setting once a round, in random order.

    Args:
        settings: the counts to try, in the order of `start`; None for all up to `most`.
    """

    def __init__(
        self, *arguments: Any, settings: Sequence[Sequence[int]] | None = None, **options: Any
    ) -> None:
        from aclearn.control.tuner.rate_window import RateWindow

        super().__init__(*arguments, **options)
        ranges = [range(1, most + 1) for most in self.most.values()]
        self._settings = list(itertools.product(*ranges)) if settings is None else settings
        self._left: list[Sequence[int]] = []
        self._window = RateWindow(settle_s=self._settle_s, longest_gap_s=options["longest_gap_s"])

    def _measure(self, now: float, counter: int, runs: bool) -> tuple[float, float] | None:
        """As the tuner, in whole windows."""
        from aclearn.control.tuner.rate_window import Reading

        reading = self._window.observe(now, counter, runs=runs)
        if not isinstance(reading, Reading) or reading.window_s < self._every_s:
            return None
        self._window.begin()
        return reading.rate, reading.window_s

    def next(self, count: int) -> tuple[Any, str]:
        """The next setting of a shuffled round."""
        if not self._left:
            self._left = self.rng.sample(self._settings, len(self._settings))
        self.counts = dict(zip(self.most, self._left.pop(), strict=True))
        return "kept", "sweep"


class Ga3c(Rule):
    """GA3C's `ThreadDynamicAdjustment`: steps of all counts at once, against the last window.

    As in that code:

    * It counts batches (`tps`, its calls of `train_model`).
    * It compares the count with that of the last window, even of a rejected setting.
    * It reverts only the numbers: the reverted setting does not run before the next step.
    * The first window is half as long as the others (`DYNAMIC_SETTINGS_INITIAL_WAIT`, 10 s, and
      `DYNAMIC_SETTINGS_STEP_WAIT`, 20 s), so that the first step nearly always pays.
    * There is no pause before a window.

    Different from it:

    * Windows are as long as the other rules', not 20 s, and as exact as the trainer's heartbeats.
    * A window begins when the roles report the counts, not when their start returns.
    * Counts have the benchmark's upper bound.
    * It moves NP and NT, not NA.
    * A batch has the same number of unrolls for every NT, so smaller batches cannot raise the rate.
    """

    objective = "tps"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._settle_s = 0.0
        self._step_s, self._every_s = self._every_s, self._every_s / 2
        self._old_count, self._before = 0, dict(self.counts)

    def next(self, count: int) -> tuple[Any, str]:
        """Revert after a lower count than in the last window; then take a random step."""
        self._every_s = self._step_s
        worse = count < self._old_count
        if worse:
            self.counts = dict(self._before)  # only the numbers: this setting does not run
        self._old_count, self._before = count, dict(self.counts)
        while self.counts == self._before:
            for name, most in self.most.items():
                self.counts[name] = min(
                    most, max(1, self.counts[name] - self.rng.choice((-1, 0, 1)))
                )
        return ("rejected" if worse else "accepted"), "compared with the last window"

    def kept(self) -> Mapping[str, int]:
        """The counts before the current step."""
        return self._before


RULES: dict[str, type[Rule]] = {"sweep": Sweep, "ga3c": Ga3c}


def turns_of(settings: Iterable[Sequence[int]]) -> str:
    """The name of a sweep of these settings alone, as `rule_of` reads it: `sweep 1,2 3,1`."""
    return " ".join(["sweep", *(",".join(map(str, counts)) for counts in settings)])


def rule_of(name: str) -> Callable[..., Rule]:
    """The maker of a named rule; the settings of a sweep may follow its name."""
    kind, *settings = name.split()
    if not settings:
        return RULES[kind]
    return functools.partial(
        RULES[kind], settings=[tuple(map(int, counts.split(","))) for counts in settings]
    )
