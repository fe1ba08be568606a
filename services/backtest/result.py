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
from services.backtest.subjects import subjects_at
from services.evaluator.saved_policy import SavedRun

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
        policies: what was played → a track for each run or population.
        baselines: name → track.
        snapshots: of each run that has kept some, agent steps of its training and the value of the
            account at the end, 1 at the start, by the policies of these steps.
    """

    cost: float
    policies: Mapping[str, Sequence[Track]]
    baselines: Mapping[str, Track]
    snapshots: Mapping[str, Sequence[tuple[int, float]]]

    @property
    def first(self) -> Track:
        """One of the policies' tracks."""
        return next(iter(self.policies.values()))[0]


@dataclass(frozen=True, eq=False)
class Result:
    """A backtest at several costs.

    Attributes:
        names: of the runs and populations, in the order of their tracks.
        left_out: baselines that the market does not allow, and why.
    """

    market: Market
    names: tuple[str, ...]
    tests: Sequence[Backtest]
    left_out: Mapping[str, str]

    def figures(self, test: Backtest) -> dict[str, list[Performance]]:
        """Figures of the policies, one a run, and of each baseline, by name."""
        tracks = {**test.policies, **{name: [track] for name, track in test.baselines.items()}}
        return {
            name: [performance(track, self.market) for track in each]
            for name, each in tracks.items()
        }

    def remarks(self) -> list[str]:
        """Sentences on what the figures show and do not show."""
        notes, first = self.market.notes, self.tests[0]
        times = first.first.times
        said = [
            f"{len(times)} bars from {shown_time(times[0])} to {shown_time(times[-1])}; "
            f"{notes.source}. Calendar: {notes.calendar}. Splits: {notes.splits}. Survivorship: "
            f"{notes.survivorship}.",
        ]
        for name, tracks in first.policies.items():
            if len(tracks) < ENOUGH_SEEDS:
                said.append(
                    f"{name}: {len(tracks)} of them; below {ENOUGH_SEEDS} seeds neither the mean "
                    "nor the band says much."
                )
        for test in self.tests:
            equal = test.baselines["equal weight"].values[-1]
            for name, tracks in test.policies.items():
                mean = np.mean([track.values[-1] for track in tracks])
                beats = "above" if mean > equal else "not above"
                said.append(
                    f"At costs of {test.cost:.1%} the mean of {name} is {beats} equal weight: "
                    f"{mean - 1.0:+.1%} and {equal - 1.0:+.1%}."
                )
        said += [f"Left out: {name}, since {why}." for name, why in self.left_out.items()]
        return [*said, _WITHOUT_PROFIT]


def backtest(
    paths: Sequence[Path],
    *,
    period: Sequence[str] | None = None,
    costs: Sequence[float] = (0.001, 0.002),
    greedy: bool = True,
    at: str | int = "newest",
    best: int = 3,
    seed: int = 1,
) -> Result:
    """Play policies and baselines on a period.

    Args:
        paths: run folders, folders of populations, or folders that have some of either: seeds. Of a
            population its best agent and an ensemble of its best members are played.
        period: first and last day; None: the runs' own test periods. If these differ, they are
            folds of a walk-forward test: each account goes on with the run of the next fold that
            has the same seed.
        at: which checkpoint of each run, as of `load_policy`.
        best: members of an ensemble, as far as there are so many.

    Raises:
        AclearnError: a run that cannot be used, or folds that overlap or leave days out.
    """
    played = subjects_at(paths, at=at, best=best)
    lines: dict[str, list[Tested]] = {}
    for each in played:
        tested = Tested.of(each.saved, each.path, period)
        lines.setdefault(each.line, []).append(tested)
        market = lines[played[0].line][0].market
        alike = np.array_equal(tested.market.times, market.times)
        if not alike or tested.market.names != market.names:
            raise ArgumentError(
                f"{each.path}: its market is another one than that of {played[0].path}"
            )
    chains = {line: _chains(each) for line, each in lines.items()}
    ends = {(each[0][0].bars[0], each[0][-1].bars[1]) for each in chains.values()}
    if len(ends) > 1:
        raise ArgumentError(
            f"the test periods of {' and '.join(chains)} differ; name the days with --from and --to"
        )
    [(begin, end)] = ends
    kept = {
        each.name: [(_steps(one), Tested.of(one, each.path, period)) for one in each.snapshots]
        for each in played
        if each.snapshots
    }

    def track(tested: Tested, cost: float) -> Track:
        return tested.track(cost, greedy=greedy, seed=seed)

    tests, left_out = [], {}
    for cost in costs:
        simple = {}
        for name in BASELINES:
            try:
                simple[name] = baseline(market, (begin, end), name, cost=cost)
            except MarketError as error:
                left_out[name] = str(error)
        tracks = {
            line: [_joined([track(each, cost) for each in chain]) for chain in of_line]
            for line, of_line in chains.items()
        }
        later = {
            name: [(steps, float(track(each, cost).values[-1])) for steps, each in of_run]
            for name, of_run in kept.items()
        }
        tests.append(Backtest(cost, tracks, simple, later))
    names = tuple(dict.fromkeys(each.name for each in played))
    return Result(market, names, tests, left_out)


def _steps(run: SavedRun) -> int:
    """Agent steps of its training."""
    return int(run.checkpoint.state["account"]["env_steps"])


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
