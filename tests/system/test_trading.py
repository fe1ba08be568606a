"""Trading with an int8 policy in processes of its own, and its backtest."""

from __future__ import annotations

import signal

from aclearn.runs import read_metrics
from tests.support.system import System
from tests.support.waiting import wait_for


def test_actors_with_an_int8_policy_train_on_the_shipped_market_and_are_tested(
    system: System,
) -> None:
    runs = system.folder / "runs"
    train = system.command(
        "train",
        "finance/stocks_int8",
        "run.name=r",
        f"run.dir={runs}",
        "run.max_env_steps=null",
        "policy.hidden=[16]",
        "actors.processes=2",
        "evaluator.every_s=1",
        "evaluator.episodes=2",
        "trainer.epochs=1",
    )
    metrics = runs / "r" / "metrics.jsonl"

    def has_learned_and_is_judged() -> bool:
        assert train.process.poll() is None, train.output
        lines = read_metrics(metrics) if metrics.exists() else []
        return any(
            line["learned_steps"] > 10_000 and line.get("evaluator_evaluations") for line in lines
        )

    # by a signal: a bound in steps may be reached before the first evaluation is over
    wait_for(
        has_learned_and_is_judged, "it is judged", within_s=180.0, context=lambda: train.output
    )
    train.signal(signal.SIGTERM)
    assert train.wait() == 128 + signal.SIGTERM, train.output
    assert "evaluated" in train.output

    out = system.folder / "report.html"
    tested = system.command("backtest", runs / "r", "--out", out)
    assert tested.wait(within_s=120.0) == 0, tested.output
    assert "501 bars from 2021-01-04 to 2022-12-28" in tested.output
    assert "equal weight" in out.read_text()
    again = system.command("backtest", runs / "r", "--from", "2020-06-01", "--to", "2021-06-01")
    assert again.wait() != 0
    assert "test begins on 2020-06-01, before the end of validation" in again.output
