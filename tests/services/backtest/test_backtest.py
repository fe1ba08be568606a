from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclearn.envs.trading import TradingEnv
from aclearn.errors import AclearnError, ArgumentError, MarketError
from aclearn.population import Lineage
from aclearn.population.file import judged_folder, write_lineage
from aclearn.runs import save_checkpoint
from services.api import ensemble, load
from services.backtest import report
from services.backtest.result import Result, backtest
from services.evaluator.saved_policy import load_policy
from services.population.inheriting import keep_best, keep_judged
from tests.support.cli import aclearn
from tests.support.saved_runs import save_run

_TRAIN, _TEST = ["2020-12-01", "2021-03-31"], ["2021-04-01", "2021-05-31"]
_KWARGS: dict[str, Any] = {
    "market": {"synthetic": {"stocks": 3, "days": 420, "seed": 2}},
    "periods": {"train": _TRAIN, "test": _TEST},
    "indicators": ["rsi_14"],
    "window": 20,
    "random_accounts": True,
    "h_max": 100_000,  # the actions of a new policy are about 0.01
}
_ID = "vector:aclearn.envs.trading:TradingVectorEnv"


def _run(folder: Path, seed: int = 3, **kwargs: Any) -> Path:
    folder.mkdir()
    return save_run(folder, {"id": _ID, "kwargs": {**_KWARGS, **kwargs}}, run={"seed": seed})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _run(tmp_path_factory.mktemp("runs") / "one")


@pytest.fixture(scope="module")
def result(run: Path) -> Result:
    return backtest([run, run])


def test_a_run_plays_its_own_test_period_as_the_environment_does(result: Result, run: Path) -> None:
    policy = load(run)
    for test in result.tests:
        settings = {**_KWARGS, "window": None, "random_accounts": False, "cost": test.cost}
        env = TradingEnv(**settings, period="test")
        seen, _ = env.reset(seed=0)
        values, ended = [1.0], False
        while not ended:
            seen, _, _, ended, info = env.step(policy.act(seen, greedy=True))
            values.append(env.batch.values[0] / 1e6)
        track = test.first
        np.testing.assert_allclose(track.values, values, rtol=1e-6)
        assert track.costs == pytest.approx(info["costs"]) and track.costs > 1e-4
        assert track.turnover == pytest.approx(info["turnover"])
        assert [str(t)[:10] for t in track.times[[0, -1]]] == _TEST
    assert [test.cost for test in result.tests] == [0.001, 0.002]
    assert [*result.tests[0].baselines] == [
        "equal weight", "buy and hold", "minimum variance", "momentum", "index",
    ]  # fmt: skip


def test_the_last_bar_is_the_account_also_where_its_reward_is_not(tmp_path: Path) -> None:
    plain, faulty = (
        backtest([_run(tmp_path / str(faults), finrl_faults=faults)]).tests[0].first.values
        for faults in (False, True)
    )
    np.testing.assert_allclose(faulty, plain, rtol=1e-6)


def test_a_report_has_curves_tables_and_what_they_do_not_show(result: Result) -> None:
    page, picture = report.html_of(result), report.png_of(result)
    assert picture.startswith(b"\x89PNG") and picture == report.png_of(result)
    assert page.startswith("<!doctype html>") and "<svg" in page
    assert page == report.html_of(result)
    assert not re.search(r'(src|href)="(?!#)', page)  # nothing comes from elsewhere
    for words in (
        "Costs of 0.10%", "Costs of 0.20%", "turnover", "max drawdown", "momentum",
        "below 5 seeds neither", "equal weight:", "synthetic, seed 2", "promise no profit",
    ):  # fmt: skip
        assert words in page, words
    head, (name, *cells), *_ = report.table_of(result, result.tests[0])
    assert "sharpe daily" not in head  # bars are days
    final = result.tests[0].first.values[-1] - 1.0
    assert (name, head[1]) == ("policy", "cumulative return")
    assert cells[0] == f"{final:.1%} ± 0.0%"
    assert len(cells) == len(head) - 1


@pytest.mark.parametrize(
    ("period", "error", "message"),
    [
        (["2021-03-31", "2021-05-31"], MarketError, "test begins on 2021-03-31, before the end of"),
        (["2031-03-31", "2031-05-31"], MarketError, "periods.test: expected at least 2 bars"),
    ],
)
def test_a_period_that_the_run_was_trained_on_is_refused(
    run: Path, period: list[str], error: type[AclearnError], message: str
) -> None:
    with pytest.raises(error, match=message):
        backtest([run], period=period)


def test_runs_without_a_market_or_a_test_period_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"CartPole-v1 has no market and periods in env.kwargs"):
        backtest([save_run(tmp_path, {"id": "CartPole-v1"})])
    without = _run(tmp_path / "b", periods={"train": _TRAIN})
    with pytest.raises(ArgumentError, match="its periods have no test; name the days"):
        backtest([without])
    backtest([without], period=_TEST, costs=[0.0])


def test_runs_of_later_test_periods_are_folds_of_one_account(run: Path, tmp_path: Path) -> None:
    later = {"train": [_TRAIN[0], _TEST[1]], "test": ["2021-06-01", "2021-07-30"]}
    second = _run(tmp_path / "second", periods=later)
    whole = backtest([second, run], costs=[0.001]).tests[0]
    parts = [backtest([each], costs=[0.001]).tests[0].first for each in (run, second)]
    (track,) = whole.policies["policy"]
    assert len(track.values) == len(track.times) == sum(len(part.values) for part in parts)
    assert track.values[-1] == pytest.approx(parts[0].values[-1] * parts[1].values[-1])
    np.testing.assert_array_equal(whole.baselines["equal weight"].times, track.times)
    gap = _run(tmp_path / "gap", periods={**later, "test": ["2021-06-08", "2021-07-30"]})
    with pytest.raises(ArgumentError, match="follow one another without a gap"):
        backtest([run, gap])
    other = _run(tmp_path / "other", seed=4, periods=later)
    with pytest.raises(ArgumentError, match="seed 3: it has no run for each of the 2 folds"):
        backtest([run, other])


def test_a_run_on_the_resident_market_is_played_on_the_same_one(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("warp")
    resident = save_run(tmp_path, {"id": "resident:Trading", "kwargs": _KWARGS})
    ours, theirs = (backtest([each], costs=[0.001]).tests[0].first for each in (resident, run))
    np.testing.assert_array_equal(ours.values, theirs.values)  # of one seed
    assert ours.costs == theirs.costs > 0.0


def test_runs_on_another_market_are_refused(run: Path, tmp_path: Path) -> None:
    other = _run(tmp_path / "o", market={"synthetic": {"stocks": 3, "days": 421, "seed": 2}})
    with pytest.raises(ArgumentError, match="its market is another one than that of"):
        backtest([run, other])


def _population(folder: Path, seed: int) -> Path:
    """A population of three members, of which the second is the best."""
    folder.mkdir(parents=True)
    lineage = Lineage.begin([{} for _ in range(3)], round_steps=100)
    now = lineage.now
    for number in range(3):
        member = folder / f"member-{number}"
        _run(folder / "new", seed=10 * seed + number).rename(member)
        (folder / "new").rmdir()
        checkpoint = load_policy(member).checkpoint
        fitness = [1.0, 3.0, 2.0][number]
        judged = now.members[number].judged(fitness, 0.1, 100, checkpoint.path.stem, 0)
        now = now.with_member(judged)
        keep_judged(judged_folder(folder, number), member, checkpoint.path.stem)
        if number == 1:
            keep_best(folder / "best", member, checkpoint.path.stem, fitness)
            best = lineage.with_now(now).new_best()
    write_lineage(folder, lineage.with_now(now).model_copy(update={"best": best}))
    return folder


def test_a_population_is_its_best_agent_and_an_ensemble(tmp_path: Path) -> None:
    populations = [_population(tmp_path / "seeds" / f"p{n}", n) for n in range(2)]
    one = backtest([populations[0]], costs=[0.001], best=2).tests[0]
    assert [*one.policies] == ["best agent", "ensemble of 2"]
    [best] = one.policies["best agent"]
    member = backtest([populations[0] / "member-1"], costs=[0.001]).tests[0].first
    np.testing.assert_array_equal(best.values, member.values)
    folder = ensemble([populations[0] / f"member-{n}" for n in (1, 2)], tmp_path / "two")
    joined = backtest([folder], costs=[0.001]).tests[0].first
    np.testing.assert_array_equal(one.policies["ensemble of 2"][0].values, joined.values)
    # a folder of populations is one of seeds, with a mean and a band
    both = backtest([tmp_path / "seeds"], costs=[0.001])
    assert {name: len(each) for name, each in both.tests[0].policies.items()} == {
        "best agent": 2, "ensemble of 3": 2,
    }  # fmt: skip
    page = report.html_of(both)
    assert "Backtest of p0, p1" in page and "best agent" in page and "ensemble of 3" in page


def test_kept_policies_are_played_over_the_same_period(run: Path, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    for number in range(2):
        folder = _run(tmp_path / f"{number}", seed=number).rename(seeds / f"run-{number}")
        newest = load_policy(folder).checkpoint
        for part in (1, 2):
            account = {**newest.state["account"], "env_steps": 500 * part}
            weights = {name: part * tensor for name, tensor in newest.tensors.items()}
            save_checkpoint(
                newest.path.parent, tensors=weights, state={**newest.state, "account": account},
                label=part, keep=3, mark="kept", spread=5,
            )  # fmt: skip
    result = backtest([seeds], costs=[0.001])
    [test] = result.tests
    assert len(test.policies["policy"]) == 2
    assert {name: [steps for steps, _ in each] for name, each in test.snapshots.items()} == {
        "run-0": [500, 1000], "run-1": [500, 1000],
    }  # fmt: skip
    # the first one has the weights of the newest
    assert test.snapshots["run-0"][0][1] == test.policies["policy"][0].values[-1]
    assert test.snapshots["run-0"][1][1] != test.snapshots["run-0"][0][1]
    page = report.html_of(result)
    assert "snapshot of" in page and "agent steps of training" in page


def test_a_folder_with_nothing_to_play_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="it is no run and no population, and has none in it"):
        backtest([tmp_path])


def test_the_command_writes_both_files_and_prints_the_table(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    for bad in (".", "report.png"):
        with pytest.raises(ArgumentError, match=r"--out: .* expected a name that ends in \.html"):
            aclearn("backtest", run, "--out", bad)
    said = aclearn("backtest", run, "--out", out, "--cost", "0.001")
    assert "equal" in said and "promise no profit" in said
    assert out.read_text().startswith("<!doctype html>")
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
