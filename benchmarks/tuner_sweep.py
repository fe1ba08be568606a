"""A sweep of all worker counts, which `tuner.py` puts in place of the tuner."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


class Sweep:
    """Every setting for a window once a round, in random order; with the methods of `Tuner`.

    Args:
        start: count by name.
        most: bounds.
        every_s: length of a window.
        settle_s, longest_gap_s: as of `RateWindow`.
        rng: draws.
        settings: the counts to try, in the order of `start`; None for all up to `most`.
    """

    temperature, frozen = 0.0, False

    def __init__(
        self,
        start: Mapping[str, int],
        most: Mapping[str, int],
        *,
        every_s: float,
        settle_s: float,
        longest_gap_s: float,
        rng: random.Random,
        settings: Sequence[Sequence[int]] | None = None,
        **others: Any,
    ) -> None:
        from aclearn.control.tuner.rate_window import RateWindow

        self.counts, self._most, self._rng = dict(start), dict(most), rng
        ranges = [range(1, bound + 1) for bound in most.values()]
        self._settings = list(itertools.product(*ranges)) if settings is None else settings
        self._left: list[Sequence[int]] = []
        self._every_s = every_s
        self._window = RateWindow(settle_s=settle_s, longest_gap_s=longest_gap_s)
        self.rate: float | None = None

    def propose(self, bottleneck: str | None = None) -> dict[str, int]:
        """The counts to run now."""
        return dict(self.counts)

    def best(self) -> None:
        """None: no counts are remembered."""

    def observe(
        self, now: float, counter: int, counts: Mapping[str, int], **others: Any
    ) -> list[Any]:
        """Take a sample; the end of a window begins that of the next setting."""
        from aclearn.control.tuner.decision import Decision
        from aclearn.control.tuner.rate_window import Reading

        runs = all(counts.get(name) == count for name, count in self.counts.items())
        reading = self._window.observe(now, counter, runs=runs)
        if not isinstance(reading, Reading) or reading.window_s < self._every_s:
            return []
        self._window.begin()
        self.rate, measured = reading.rate, self.counts
        if not self._left:
            self._left = self._rng.sample(self._settings, len(self._settings))
        self.counts = dict(zip(self._most, self._left.pop(), strict=True))
        return [
            Decision(
                verdict="kept",
                reason="sweep",
                counts=measured,
                kept=self.counts,
                rate=reading.rate,
                window_s=reading.window_s,
                baseline=None,
                change=None,
                noise=0.0,
                temperature=0.0,
                state="searching",
            )
        ]


def turns_of(settings: Iterable[Sequence[int]]) -> str:
    """The name of a sweep of these settings alone, as `sweep_of` reads it: `sweep 1,2 3,1`."""
    return " ".join(["sweep", *(",".join(map(str, counts)) for counts in settings)])


def sweep_of(name: str) -> Callable[..., Sweep]:
    """The maker of a sweep by its name, whose settings may follow."""
    _, *settings = name.split()
    chosen = [tuple(map(int, counts.split(","))) for counts in settings] or None
    return functools.partial(Sweep, settings=chosen)
