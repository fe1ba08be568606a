"""Prices of some stocks at the bars of one market, checked when they are put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import MarketError

Numbers = NDArray[np.float64]
Times = NDArray[np.datetime64]

#: Trading days of a year on American exchanges, by which all common figures are annualised.
DAYS_PER_YEAR = 252
#: Longest time without a bar: the exchanges were closed for six days in September 2001.
_LARGEST_PAUSE = np.timedelta64(10, "D")
_DAY = np.timedelta64(1, "D")


@dataclass(frozen=True)
class MarketNotes:
    """Statements on where prices come from, for whoever reads a result.

    Attributes:
        calendar: which bars there are.
        splits: whether prices are adjusted for splits and dividends.
        survivorship: how the stocks were chosen.
    """

    source: str = "not stated"
    calendar: str = "not stated"
    splits: str = "not stated"
    survivorship: str = "not stated"


@dataclass(frozen=True, eq=False)
class Market:
    """T bars of n stocks; bar t is what is known at `times[t]`.

    Attributes:
        times: [T], ends of the bars, ascending.
        close: [T, n], also each of `open`, `high`, `low` and `volume`; None: the data lack it.
        index: [T], of an index of the whole market.
        columns: the user's own numbers, [T, n] or for all stocks [T]; may begin with NaN.

    Raises:
        MarketError: prices that are missing, not positive or not in order, or other shapes.
    """

    times: Times
    names: tuple[str, ...]
    close: Numbers
    open: Numbers | None = None
    high: Numbers | None = None
    low: Numbers | None = None
    volume: Numbers | None = None
    index: Numbers | None = None
    columns: Mapping[str, Numbers] = field(default_factory=dict)
    notes: MarketNotes = MarketNotes()

    def __post_init__(self) -> None:
        self._check_times()
        for name in ("close", "open", "high", "low"):
            if (prices := getattr(self, name)) is not None:
                self._check_prices(name, prices)
        if self.volume is not None:
            self._check_shape("volume", self.volume, (len(self.times), len(self.names)))
            self._refuse("volume", ~(self.volume >= 0), self.volume, "a number of at least 0")
        if self.index is not None:
            self._check_shape("index", self.index, (len(self.times),))
            index = self.index[:, None]
            self._refuse("index", ~_is_price(index), index, "a price above 0", names=("index",))
        for name, column in self.columns.items():
            full = (len(self.times), len(self.names))
            if column.shape not in (full, full[:1]):
                raise MarketError(f"column {name}: expected the shape {full}, got {column.shape}")

    @cached_property
    def bars_per_day(self) -> int:
        """Bars of a usual trading day; 1 if bars are a day or longer."""
        _, counts = np.unique(self.times.astype("datetime64[D]"), return_counts=True)
        return int(np.median(counts))

    @property
    def bars_per_year(self) -> float:
        """Bars of a year, by which returns and volatilities of a bar are annualised."""
        return float(DAYS_PER_YEAR * self.bars_per_day)

    def position(self, time: str, *, key: str, after: bool = False) -> int:
        """Index of the first bar at or after a time.

        Args:
            time: ISO 8601; a date means its first moment.
            key: of the setting, for the message.
            after: count bars up to the end of `time`'s day, or up to `time` itself.

        Raises:
            MarketError: this is no time.
        """
        try:
            moment = np.datetime64(time)
        except ValueError as error:
            raise MarketError(
                f"{key}: expected a date such as 2018-12-31 or a time, got {time!r}"
            ) from error
        if not after:
            return int(np.searchsorted(self.times, moment, side="left"))
        if np.datetime_data(moment.dtype)[0] == "D":
            return int(np.searchsorted(self.times, moment + _DAY, side="left"))
        return int(np.searchsorted(self.times, moment, side="right"))

    def _check_times(self) -> None:
        times = self.times
        if times.ndim != 1 or times.dtype.kind != "M" or not len(times):
            raise MarketError(f"times: expected datetime64 [T], got {times.dtype} {times.shape}")
        if not self.names or len(set(self.names)) < len(self.names):
            raise MarketError(f"names: expected different names of stocks, got {self.names}")
        if np.isnat(times).any():
            raise MarketError(f"times: bar {int(np.isnat(times).argmax())} has no date")
        steps = np.diff(times)
        for wrong, said in (
            (steps == 0, "is there twice; keep one bar of each time"),
            (steps < np.timedelta64(0), "comes after a later one; sort the bars by time"),
            (steps > _LARGEST_PAUSE, "comes after a gap of more than 10 days; cut the data there"),
        ):
            if wrong.any():
                raise MarketError(f"times: {self._time(int(wrong.argmax()) + 1)} {said}")
        self._check_sessions(steps)

    def _check_sessions(self, steps: NDArray[np.timedelta64]) -> None:
        """Refuse a bar that is missing within a day."""
        days = self.times.astype("datetime64[D]")
        inside = days[1:] == days[:-1]
        if not inside.any():
            return
        bar = np.median(steps[inside].astype(np.int64)).astype(np.int64)
        longer = inside & (steps.astype(np.int64) > bar)
        if longer.any():
            raise MarketError(
                f"times: bars are missing before {self._time(int(longer.argmax()) + 1)}, in the "
                "middle of a day; repeat the bar before the gap, or leave the day out"
            )

    def _check_prices(self, name: str, prices: Numbers) -> None:
        self._check_shape(name, prices, (len(self.times), len(self.names)))
        missing = np.isnan(prices)
        for i in np.flatnonzero(missing.any(axis=0)):
            has = np.flatnonzero(~missing[:, i])
            who = f"{name} of {self.names[i]}"
            if not len(has):
                raise MarketError(f"{who}: it has no price at all; leave the stock out")
            if has[0] > 0:
                raise MarketError(
                    f"{who}: its first price is of {self._time(has[0])}, and the market begins on "
                    f"{self._time(0)}; leave the stock out or begin the market there"
                )
            if has[-1] < len(prices) - 1:
                raise MarketError(
                    f"{who}: its last price is of {self._time(has[-1])}, and the market ends on "
                    f"{self._time(-1)}; end the market there. Without the stock, results say "
                    "nothing of stocks that failed"
                )
            raise MarketError(
                f"{who}: it is missing (NaN) at {self._time(int(missing[:, i].argmax()))}, and "
                "there are later ones; set market.fill to the longest gap that its last price may "
                "fill, or leave the stock out"
            )
        self._refuse(name, ~_is_price(prices), prices, "a price above 0")

    def _refuse(
        self,
        what: str,
        wrong: NDArray[np.bool_],
        numbers: Numbers,
        expected: str,
        names: tuple[str, ...] = (),
    ) -> None:
        if wrong.any():
            t, i = (int(x) for x in np.argwhere(wrong)[0])
            raise MarketError(
                f"{what} of {(names or self.names)[i]}: {numbers[t, i]:g} at {self._time(t)}, "
                f"expected {expected}"
            )

    @staticmethod
    def _check_shape(what: str, numbers: Numbers, expected: tuple[int, ...]) -> None:
        if numbers.shape != expected:
            raise MarketError(f"{what}: expected the shape {expected}, got {numbers.shape}")

    def _time(self, t: Any) -> str:
        """A bar's time as a message shows it."""
        return shown_time(self.times[t])


def shown_time(time: Any) -> str:
    """A time as text; a date where its bar is that of a day."""
    return str(np.datetime64(time, "s")).removesuffix("T00:00:00").replace("T", " ")


def _is_price(numbers: Numbers) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = np.isfinite(numbers) & (numbers > 0.0)
    return result
