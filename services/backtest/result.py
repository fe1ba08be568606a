"""A backtest: tracks of runs and baselines at some costs, and their figures."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from aclearn.envs.trading import Market
from aclearn.envs.trading.baselines import BASELINES, baseline
from aclearn.envs.trading.market import shown_time
from aclearn.envs.trading.performance import Performance, Track, performance
from aclearn.errors import ArgumentError, MarketError
from services.backtest.play import Tested

_LOGGER = logging.getLogger(__name__)
#: Runs below which a band says little.
ENOUGH_SEEDS = 5
_WITHOUT_PROFIT = (
    "These figures are of past prices, on which orders moved nothing and were always filled. They "
    "promise no profit."
)


@dataclass(frozen=True, eq=False)
class Backtest:
    """What came out at one cost.

    Attributes:
        runs: a track for each run.
        baselines: name → track.
    """

    cost: float
    runs: Sequence[Track]
    baselines: Mapping[str, Track]


@dataclass(frozen=True, eq=False)
class Result:
    """A backtest at several costs.

    Attributes:
        names: of the runs, in the order of their tracks.
        left_out: baselines that the market does not allow, and why.
    """

    market: Market
    names: tuple[str, ...]
    tests: Sequence[Backtest]
    left_out: Mapping[str, str]

    def figures(self, test: Backtest) -> dict[str, list[Performance]]:
        """Figures of the policies, "policy" → one a run, and of each baseline."""
        rows = {"policy": [performance(track, self.market) for track in test.runs]}
        for name, track in test.baselines.items():
            rows[name] = [performance(track, self.market)]
        return rows

    def remarks(self) -> list[str]:
        """Sentences on what the figures show and do not show."""
        notes, first = self.market.notes, self.tests[0]
        times = first.runs[0].times
        said = [
            f"{len(times)} bars from {shown_time(times[0])} to {shown_time(times[-1])}; "
            f"{notes.source}. Calendar: {notes.calendar}. Splits: {notes.splits}. Survivorship: "
            f"{notes.survivorship}.",
        ]
        if len(self.names) < ENOUGH_SEEDS:
            said.append(
                f"The policies are of {len(self.names)} runs; below {ENOUGH_SEEDS} seeds neither "
                "the mean nor the band says much."
            )
        for test in self.tests:
            policy = np.mean([track.values[-1] for track in test.runs])
            equal = test.baselines["equal weight"].values[-1]
            beats = "above" if policy > equal else "not above"
            said.append(
                f"At costs of {test.cost:.1%} the mean of the policies is {beats} equal weight: "
                f"{policy - 1.0:+.1%} and {equal - 1.0:+.1%}."
            )
        said += [f"Left out: {name}, since {why}." for name, why in self.left_out.items()]
        return [*said, _WITHOUT_PROFIT]


def backtest(
    runs: Sequence[Path],
    *,
    period: Sequence[str] | None = None,
    costs: Sequence[float] = (0.001, 0.002),
    greedy: bool = True,
    at: str | int = "newest",
    seed: int = 1,
) -> Result:
    """Play runs and baselines on a period.

    Args:
        period: first and last day; None: the runs' own test periods. If these differ, they are
            folds of a walk-forward test: each account goes on with the run of the next fold that
            has the same seed.
        at: which checkpoint of each run, as of `load_policy`.

    Raises:
        AclearnError: a run that cannot be used, or folds that overlap or leave days out.
    """
    tested = [Tested.of(run, period, at=at) for run in runs]
    market = tested[0].market
    for run, each in zip(runs, tested, strict=True):
        if not np.array_equal(each.market.times, market.times) or each.market.names != market.names:
            raise ArgumentError(f"{run}: its market is another one than that of {runs[0]}")
    chains = _chains(tested)
    begin, end = chains[0][0].bars[0], chains[0][-1].bars[1]
    tests, left_out = [], {}
    for cost in costs:
        lines = {}
        for name in BASELINES:
            try:
                lines[name] = baseline(market, (begin, end), name, cost=cost)
            except MarketError as error:
                left_out[name] = str(error)
        tracks = [
            _joined([each.track(cost, greedy=greedy, seed=seed) for each in chain])
            for chain in chains
        ]
        tests.append(Backtest(cost, tracks, lines))
    names = tuple(str(chain[0].saved.config.run.name) for chain in chains)
    return Result(market, names, tests, left_out)


def _chains(tested: Sequence[Tested]) -> list[list[Tested]]:
    """For each seed its runs in the order of their folds; a fold each where all are alike."""
    folds = sorted({each.bars for each in tested})
    if len(folds) == 1:
        return [[each] for each in tested]
    for earlier, later in pairwise(folds):
        if earlier[1] != later[0]:
            raise ArgumentError(
                "the test periods of the runs differ, so that they are folds, and these must "
                f"follow one another without a gap: bars {earlier} and {later}"
            )
    by_seed: dict[int, dict[tuple[int, int], Tested]] = {}
    for each in tested:
        of_seed = by_seed.setdefault(int(each.saved.config.run.seed or 0), {})
        if each.bars in of_seed:
            raise ArgumentError(
                f"two runs of seed {each.saved.config.run.seed} have the same test period"
            )
        of_seed[each.bars] = each
    for number, of_seed in by_seed.items():
        if [*sorted(of_seed)] != folds:
            raise ArgumentError(f"seed {number}: it has no run for each of the {len(folds)} folds")
    return [[of_seed[fold] for fold in folds] for of_seed in by_seed.values()]


def _joined(tracks: Sequence[Track]) -> Track:
    """One track of several that follow one another, each from cash."""
    values, costs, turnover = [np.ones(1)], 0.0, 0.0
    for number, track in enumerate(tracks):
        so_far = values[-1][-1]
        # the first bar of a fold is one more step: its account is cash then
        values.append(so_far * (track.values if number else track.values[1:]))
        costs, turnover = costs + so_far * track.costs, turnover + so_far * track.turnover
    times = np.concatenate([track.times for track in tracks])
    return Track(times, np.concatenate(values), costs, turnover)
