"""What the monitor's process knows of its machine and of the monitor before."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from aclearn.runs import RunFolder
from aclearn.wire import Envelope, Number, NumberRequest
from services.monitor import main
from services.monitor.registry import Member
from services.role.context import Start
from tests.support.clock import Clock


def test_a_monitor_with_few_open_files_refuses_whom_it_could_not_hear_and_says_why(
    roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "most_connections", lambda: 64 + 2)
    registry = main._open_registry(roles("monitor-0"))
    members = [Member("actor", number, f"a{number}", b"", {}) for number in range(3)]
    for member in members[:2]:
        assert registry.refusal(member) is None
        registry.hello(member, 0.0)
    words = "the run has 2 processes, the most by the monitor's limit of open files (ulimit -n)"
    assert words in str(registry.refusal(members[2]))
    monkeypatch.setattr(main, "most_connections", lambda: 1 << 20)
    assert main._open_registry(roles("monitor-0"))._most == 4096


@pytest.mark.parametrize(("told_s", "from_s"), [(None, 3.05), (9.0, 12.0)])
def test_numbers_wait_until_the_living_have_told_a_new_monitor_theirs(
    roles, tmp_path, told_s, from_s
) -> None:
    """In a large run their heartbeats are rare, by the interval of the monitor before."""
    context, clock = roles("monitor-0"), Clock()
    context.clocks = replace(context.clocks, decisions=clock)
    context.start = Start(by_hand=False)
    context.run.folder = folder = RunFolder.create(tmp_path, "run-1", context.config.to_yaml())
    line = {"time_s": 7.0, "env_steps": 10}
    if told_s is not None:
        line["monitor_heartbeat_every_s"] = told_s
    folder.metrics_path.write_text(json.dumps(line) + "\n")
    role = main.MonitorRole(context)
    try:
        ask = Envelope("run-1", "new", 0, NumberRequest("actor"))
        assert role.state.take(b"new", ask, clock.now + from_s - 0.01) == []
        [answer] = role.state.take(b"new", ask, clock.now + from_s + 0.01)
        assert answer.message == Number(2)  # those below are of `aclearn train`
    finally:
        role.close()
