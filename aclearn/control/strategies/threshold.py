"""An indicator beyond a bound moves to a more faithful chain (AcceRL, figure 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from aclearn.control.strategies.strategy import Decision, HeldFor, Moment, Strategy

#: Factor of the wait before a return, if the rung fails again.
_WAIT_GROWS_BY = 2.0


class Threshold(Strategy):
    """Moves to the next more faithful rung while the indicator is above `epsilon`, and returns.

    The indicator of the faithful rung tells nothing about the rung below, so a return is a trial.
    It follows when the indicator was below `back_share` · `epsilon` for `back_after_s`. This wait
    doubles each time a rung fails again, up to `back_after_most_s`; it is reset when the rung has
    held for as long.

    Args:
        indicator: a metric.
        epsilon: its bound.
        back_share: share of the bound below which it counts as low again.
        back_after_s: how long it must be low before the return, in seconds.
        back_after_most_s: bound of that wait.
    """

    def __init__(
        self,
        indicator: str = "compressor_kl_max",
        epsilon: float = 14.0,
        *,
        back_share: float = 0.5,
        back_after_s: float = 30.0,
        back_after_most_s: float = 600.0,
    ) -> None:
        self._indicator, self._epsilon, self._low = indicator, epsilon, back_share * epsilon
        self._back_after_s = back_after_s
        self._back_after_most_s = max(back_after_s, back_after_most_s)
        #: How long the indicator must be low; and the rung that failed last: rungs up to it are on
        #: trial.
        self._wait_s, self._failed = back_after_s, -1
        self._low_for = HeldFor()

    @property
    def indicators(self) -> tuple[str, ...]:
        """The bounded metric."""
        return (self._indicator,)

    def value(self, moment: Moment) -> float | None:
        """The indicator; None where it is not known."""
        return moment.number(self._indicator)

    def decide(self, moment: Moment) -> Decision | None:
        """One rung up at once, one down after the wait."""
        value, rung = self.value(moment), moment.rung
        low_s = self._low_for.seconds(value is not None and value < self._low, moment)
        if value is not None and value > self._epsilon and rung < moment.top:
            self._fail(rung)
            return Decision(rung + 1, {self._indicator: value, "epsilon": self._epsilon})
        if low_s is None or low_s < self._wait_s:
            return None
        if rung <= self._failed:
            self._wait_s, self._failed = self._back_after_s, -1  # the trial was passed
        if rung == 0:
            return None
        return Decision(rung - 1, {self._indicator: value, "below": self._low, "for_s": low_s})

    def state(self) -> dict[str, float]:
        """The wait, and the failed rung."""
        return {"wait_s": self._wait_s, "failed": self._failed}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        wait_s, failed = float(state["wait_s"]), int(state["failed"])
        self._wait_s = min(max(wait_s, self._back_after_s), self._back_after_most_s)
        self._failed = failed

    def gauges(self) -> dict[str, float]:
        """The wait."""
        return {"wait_s": self._wait_s}

    def _fail(self, rung: int) -> None:
        again = rung <= self._failed
        longer = min(_WAIT_GROWS_BY * self._wait_s, self._back_after_most_s)
        self._wait_s = longer if again else self._back_after_s
        self._failed = rung
