"""Trading with an int8 policy in processes of its own, and its backtest."""

from __future__ import annotations

from tests.support.system import System


def test_actors_with_an_int8_policy_train_on_the_shipped_market_and_are_tested(
    system: System,
) -> None:
    runs = system.folder / "runs"
    train = system.command(
        "train",
        "finance/stocks_int8",
        "run.name=r",
        f"run.dir={runs}",
        "run.max_env_steps=20_000",
        "policy.hidden=[16]",
        "actors.processes=2",
        "evaluator.every_s=1",
        "evaluator.episodes=2",
        "trainer.epochs=1",
    )
    assert train.wait(within_s=180.0) == 0, train.output
    assert "evaluated" in train.output

    out = system.folder / "report.html"
    tested = system.command("backtest", runs / "r", "--out", out)
    assert tested.wait(within_s=120.0) == 0, tested.output
    assert "501 bars from 2021-01-04 to 2022-12-28" in tested.output
    assert "equal weight" in out.read_text()
    again = system.command("backtest", runs / "r", "--from", "2020-06-01", "--to", "2021-06-01")
    assert again.wait() != 0
    assert "test begins on 2020-06-01, before the end of validation" in again.output
