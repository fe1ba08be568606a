"""The sinks of a run: their calls, and sinks that raise or hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aclearn.config.monitor import MetricsConfig
from aclearn.errors import ConfigError
from aclearn.metrics.sinks import SinkRun, SinkSet, load_sinks
from aclearn.metrics.sinks.sink_set import MOST_WAITING
from tests.support.toys.toy_sink import Stubborn
from tests.support.waiting import DEADLINE_S, wait_for

RUN = SinkRun("r", Path("r"), {}, resumed=False)
TOY = "tests.support.toys.toy_sink"


@pytest.fixture
def opened() -> Iterator[Callable[..., SinkSet]]:
    """Opens sinks; they may go on and are closed after the test."""
    sets, stubborn = [], []

    def opened(timeout_s: float = DEADLINE_S, **sinks: Stubborn) -> SinkSet:
        sets.append(SinkSet(sinks, timeout_s=timeout_s))
        stubborn.extend(sinks.values())
        sets[-1].open(RUN)
        return sets[-1]

    yield opened
    for sink in stubborn:
        sink.go_on.set()
    for each in sets:
        each.close()


def test_a_sink_that_raises_is_told_once_and_gets_the_next_call(opened, caplog) -> None:
    sink, line = Stubborn(raises=("write", "close")), {"time_s": 1.0}
    sinks = opened(bad=sink)
    notes = []

    def failed() -> bool:
        notes.extend(sinks.write(line))
        return sinks.gauges()["monitor_sink_failures"] >= 3.0 and bool(notes)

    wait_for(failed, "three failures are counted")
    sinks.write_decision("tuner", {"decision": 1})
    before = sinks.gauges()["monitor_sink_failures"]
    assert sinks.close({}) == ["metrics sink bad fails in close: SystemExit: no close"]
    assert sinks.gauges()["monitor_sink_failures"] >= before + 1

    assert notes == ["metrics sink bad fails in write: RuntimeError: no write; the run continues"]
    assert line == {"time_s": 1.0}  # a sink writes to a copy
    assert sink.calls[0] == "open" and sink.calls[-2:] == ["write_decision", "close"]
    told = [t for t in caplog.messages if t.startswith("event=sink_failed sink=bad call=write")]
    assert len(told) == 1
    assert sinks.close() == []  # has no effect
    assert sink.calls.count("close") == 1


def test_a_sink_that_cannot_open_gets_nothing_more_and_the_others_do(opened) -> None:
    bad, good = Stubborn(raises=("open",)), Stubborn()
    sinks = opened(bad=bad, good=good)
    notes = wait_for(lambda: sinks.write({}), "a note comes")
    assert notes == [
        "metrics sink bad fails in open: RuntimeError: no open; the run continues without it"
    ]
    sinks.close({})
    assert bad.calls == ["open"] and good.calls[-1] == "close"


def test_a_sink_that_hangs_delays_no_call_and_the_end_only_up_to_its_deadline(
    opened, caplog
) -> None:
    hangs, good = Stubborn(hangs=("write",)), Stubborn()
    sinks = opened(timeout_s=0.2, hangs=hangs, good=good)
    sinks.write({})
    assert hangs.entered.wait(DEADLINE_S)
    for written in range(MOST_WAITING):
        assert sinks.write({}) == []
        wait_for(lambda n=written: len(good.calls) == 3 + n, "the other one takes it", pause_s=0)
    assert sinks.gauges()["monitor_sink_dropped"] == 0.0
    [note] = sinks.write({})
    assert "metrics sink hangs is too slow or hangs: 256 calls wait for it" in note
    assert sinks.write({}) == [] and sinks.gauges()["monitor_sink_dropped"] == 2.0

    begun = time.monotonic()
    [note] = sinks.close({})

    assert "metrics sink hangs was not done in time at the end, 257 calls waited" in note
    assert 0.2 <= time.monotonic() - begun < 10.0
    assert good.calls[-1] == "close" and hangs.calls == ["open", "write"]
    assert "event=sink_not_closed sink=hangs waiting_calls=257" in caplog.messages
    hangs.go_on.set()  # a late one still gets everything in order
    wait_for(lambda: hangs.calls[-1] == "close", "the late sink is closed")
    assert len(hangs.calls) == 3 + MOST_WAITING


def test_sinks_are_made_by_name_and_another_class_is_refused() -> None:
    entries: list[Any] = [{f"{TOY}:ToFile": {"name": "a"}}, {f"{TOY}:ToFile": {"name": "b"}}]
    sinks = load_sinks(MetricsConfig.model_validate({"sinks": entries}), "127.0.0.1")
    assert {name: sink.name for name, sink in sinks.items()} == {
        f"{TOY}:ToFile": "a",
        f"{TOY}:ToFile 1": "b",
    }
    with pytest.raises(ConfigError, match=r"metrics.sinks 'json:JSONDecoder': expected an insta"):
        load_sinks(MetricsConfig.model_validate({"sinks": ["json:JSONDecoder"]}), "127.0.0.1")
