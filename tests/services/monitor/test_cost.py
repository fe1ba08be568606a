"""What happens often costs the monitor the same for any number of actors, counted in lines run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from aclearn.control import Directive, SetMix
from aclearn.types import EpisodeCohort
from aclearn.wire import DirectiveAck, NumberRequest
from tests.support.monitor import Monitor


def _lines_of(act: Callable[[], object]) -> int:
    """Number of Python's lines that run, those of comprehensions and generators among them."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def _of_many(tools, actors: int) -> Monitor:
    monitor = Monitor(tools)
    monitor.hello("trainer-0", "t", unrolls="ipc:///u")
    for number in range(actors):
        monitor.hello(f"actor-{number}", f"a{number}")
        _beat(monitor, number)
    monitor.tick()
    return monitor


def _beat(monitor: Monitor, number: int) -> None:
    at = monitor.now + 1.0
    monitor.heartbeat(
        f"a{number}",
        counters={"env_steps": int(320 * at)},
        waits={"emulator": at, "total": at},
        cohorts=[EpisodeCohort(at - 0.5, 1, 2.0, 10)],
        settled_s=at,
        clock_s=at,
    )


_MESSAGES: dict[str, Callable[[Monitor], object]] = {
    "heartbeat": lambda monitor: _beat(monitor, 7),
    "step": lambda monitor: monitor.tick(0.01),
    "number": lambda monitor: monitor.take("new", NumberRequest("actor")),
    "hello": lambda monitor: monitor.hello("actor-999", "new"),
    "hello of a restarted one": lambda monitor: monitor.hello("actor-7", "new"),
    "acknowledgement": lambda monitor: monitor.take("a7", DirectiveAck(1)),
}


@pytest.mark.parametrize("message", _MESSAGES)
def test_a_message_of_one_actor_costs_the_same_among_many(tools, message) -> None:
    took = []
    for actors in (20, 400):
        monitor = _of_many(tools, actors)
        monitor.take("before", NumberRequest("actor"))  # the first one looks at all names
        if message == "acknowledgement":
            channel = monitor.state._channel
            channel.issue(Directive("actor", SetMix(0.5)), by="test", rank=0)
            assert len(monitor.tick()) == actors
        took.append(_lines_of(partial(_MESSAGES[message], monitor)))
    assert took[1] <= took[0] + 5, took
