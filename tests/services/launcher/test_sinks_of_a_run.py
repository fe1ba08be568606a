"""A whole run in this process whose metrics and decisions go to sinks of the user's."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.toys import toy_sink

_TOY = toy_sink.__name__


def test_a_sink_gets_each_line_decision_and_the_summary_and_a_broken_one_is_told(
    tmp_path: Path, start
) -> None:
    sinks = [f"{_TOY}:ToFile", {f"{_TOY}:Stubborn": {"raises": ["write"]}}]
    decided = {"deterministic": False}  # strategies decide by the clock
    settings = {
        "metrics": {"sinks": sinks},
        "compressor": {"chain": ["onnx"], "every_s": 0.5, "fidelity_every": 1},
        "monitor": {"strategies": [{"linear_mix": {"zero_at": 1e-30, "dwell_s": 0.5}}]},
    }

    def told() -> list[list]:
        lines = (tmp_path / "r" / "sink.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def records(file: str) -> list[dict]:
        return [json.loads(line) for line in (tmp_path / "r" / file).read_text().splitlines()]

    run = start(run=decided | {"max_updates": 40}, **settings)
    run.run_until(lambda: len(run.lines()) > 2, "there are lines")
    notes = run.monitor.state.status()["notes"]
    summary = run.run()
    assert any("Stubborn fails in write: RuntimeError: no write" in note for note in notes)
    calls = told()
    assert calls[0] == ["open", {"run": "r", "resumed": False, "env": "CartPole-v1"}]
    assert [value for call, value in calls if call == "write"] == run.lines()
    decisions = [value for call, value in calls if call == "write_decision"]
    assert decisions == [{"by": "linear_mix", **line} for line in records("strategies.jsonl")]
    assert decisions and calls[-1] == ["close", summary]
    assert run.lines()[-1]["monitor_sink_failures"] > 0
    assert run.lines()[-1]["monitor_sink_dropped"] == 0

    again = start(resume=True, run=decided | {"max_updates": 42}, **settings)
    again.run()
    assert told()[len(calls)] == ["open", calls[0][1] | {"resumed": True}]


def test_a_sink_that_raises_at_the_end_is_told_with_the_end(start) -> None:
    sinks = [{f"{_TOY}:Stubborn": {"raises": ["close"]}}]
    run = start(run={"max_updates": 4}, metrics={"sinks": sinks})
    summary = run.run()
    failed = f"metrics sink {_TOY}:Stubborn fails in close: SystemExit: no close"
    assert (summary["sink_error"], summary["monitor_sink_failures"]) == (failed, 1.0)
    assert summary["reason"] == "max_updates"
