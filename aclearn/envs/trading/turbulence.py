"""Turbulence: how unusual a bar's returns are beside those of the bars before."""

from __future__ import annotations

import numpy as np

from aclearn.envs.trading.market import Market, Numbers, shown_time
from aclearn.errors import MarketError

#: Bars whose covariance a bar is compared with, a year of days.
HISTORY = 252
#: Bars of one batch of covariances, for memory.
_AT_ONCE = 512


def turbulence(market: Market, begin: int, end: int) -> Numbers:
    """The squared Mahalanobis distance of the returns of bars [begin, end) from the 252 before.

    Kritzman and Li 2010, eq. 1, without their division by n; as FinRL has it.

    Raises:
        MarketError: fewer than 252 returns before `begin`, or not more of them than stocks.
    """
    T, n = market.close.shape
    if begin < HISTORY + 1:
        first = shown_time(market.times[HISTORY + 1]) if T > HISTORY + 1 else "none"
        raise MarketError(
            f"turbulence: it needs {HISTORY} returns before the first bar "
            f"{shown_time(market.times[begin])}, and there are {max(0, begin - 1)}; the first "
            f"possible bar is {first}"
        )
    if n >= HISTORY:
        raise MarketError(
            f"turbulence: the covariance of {n} stocks needs more than {n} returns, and {HISTORY} "
            "are used; leave turbulence_threshold out"
        )
    returns = market.close[1:] / market.close[:-1] - 1.0  # of bar t at t - 1
    result = np.empty(end - begin)
    for start in range(begin, end, _AT_ONCE):
        stop = min(start + _AT_ONCE, end)
        history = returns[start - 1 - HISTORY : stop - 2]
        windows = np.lib.stride_tricks.sliding_window_view(history, HISTORY, axis=0)  # [., n, 252]
        mean = windows.mean(axis=-1)
        centred = windows - mean[..., None]
        covariance = centred @ centred.swapaxes(1, 2) / (HISTORY - 1)
        # stocks that move together, or not at all, have no inverse
        inverse = np.linalg.pinv(covariance, hermitian=True)
        away = returns[start - 1 : stop - 1] - mean
        result[start - begin : stop - begin] = np.einsum("ti,tij,tj->t", away, inverse, away)
    return result
