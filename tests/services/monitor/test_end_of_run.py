"""The order in which a run ends, and the best checkpoint before it."""

from __future__ import annotations

import pytest

from aclearn.config import RunConfig
from aclearn.control import SaveBest, StopRole, StopRun
from aclearn.wire import DirectiveMessage, StatusRequest
from services.monitor.ending import Phase
from services.monitor.registry import OutgoingMessage
from tests.support.heartbeats import ended_episodes
from tests.support.monitor import Monitor


def test_actors_stop_first_and_the_other_roles_when_they_are_gone(monitor) -> None:
    for name in ("trainer-0", "predictor-0", "actor-0", "actor-1"):
        monitor.hello(name, name)
    monitor.tick()
    monitor.take("cli", StatusRequest())
    monitor.take("cli", StopRun("asked by the user").message())
    assert monitor.state.phase is Phase.STOPPING_ACTORS
    assert monitor.told_to_stop() == ["actor-0", "actor-1"]
    monitor.heartbeat("actor-0", final=True)
    assert monitor.told_to_stop(0.6) == ["actor-1"]
    monitor.heartbeat("actor-1", final=True)
    assert monitor.told_to_stop(0.1) == ["predictor-0", "trainer-0"]
    assert monitor.state.phase is Phase.STOPPING_ALL
    monitor.heartbeat("trainer-0", final=True)
    monitor.heartbeat("predictor-0", final=True)
    monitor.tick(0.1)
    assert monitor.state.phase is Phase.OVER
    assert monitor.state.reason == "asked by the user"


def test_the_stop_carries_its_reason(monitor) -> None:
    monitor.hello("actor-0", "a")
    monitor.tick()
    monitor.state.stop("max_updates", monitor.now)
    assert monitor.tick() == [OutgoingMessage(b"a", StopRole("max_updates").message(1))]


def test_reminders_come_every_half_second(monitor) -> None:
    monitor.hello("actor-0", "a")
    monitor.tick()
    monitor.state.stop("x", monitor.now)
    assert monitor.told_to_stop() == ["a"]
    assert monitor.told_to_stop(0.4) == []
    assert monitor.told_to_stop(0.2) == ["a"]


@pytest.mark.parametrize("ended_by", ["signal", "supervisor"])
def test_a_role_delays_an_end_in_haste_by_two_deadlines_at_most(monitor, ended_by) -> None:
    monitor.hello("actor-0", "a")
    monitor.hello("trainer-0", "t")
    monitor.tick()
    if ended_by == "supervisor":  # it kills roles that stay
        for _ in range(2):
            monitor.take("parent", StatusRequest())
    monitor.state.stop("x", monitor.now, in_haste=ended_by == "signal")
    monitor.tick()
    assert monitor.told_to_stop(2.9) == ["a"]
    assert monitor.told_to_stop(0.2) == ["a", "t"]
    assert monitor.state.phase is Phase.STOPPING_ALL
    monitor.tick(2.9)
    assert monitor.state.phase is Phase.STOPPING_ALL
    monitor.tick(0.2)
    assert monitor.state.phase is Phase.OVER


@pytest.mark.parametrize("ended_by", ["bound", "container"])
def test_without_a_supervisor_the_monitor_reminds_a_busy_role_until_it_counts_as_dead(
    monitor, ended_by
) -> None:
    monitor.hello("compressor-0", "c")
    monitor.hello("trainer-0", "t")
    monitor.tick()
    if ended_by == "container":  # it kills no role of another container
        for _ in range(2):  # until it has an answer
            monitor.take("c0", StatusRequest())
            [answer] = monitor.take("c0", StopRun("max_updates").message())
            assert not answer.message.refusal
        # another one gives up for the same reason
        monitor.take("c1", StatusRequest())
        [answer] = monitor.take("c1", StopRun("max_updates").message())
        assert not answer.message.refusal
    else:
        monitor.state.stop("max_updates", monitor.now)
    monitor.tick()
    monitor.heartbeat("t", final=True)
    monitor.look(10.0)
    stop = StopRole("max_updates").message(1)
    assert all(sent.message == stop for sent in monitor.look(9.0))
    assert monitor.state.phase is Phase.STOPPING_ALL
    monitor.look(2.0)
    assert monitor.state.phase is Phase.OVER


def test_a_role_that_lives_but_does_not_leave_cannot_delay_the_end_for_ever(monitor) -> None:
    monitor.hello("compressor-0", "c")
    monitor.tick()
    monitor.state.stop("max_updates", monitor.now)
    for _ in range(30):
        monitor.heartbeat("c")
        monitor.tick(1.0)
    assert monitor.state.phase is Phase.OVER


def test_a_run_without_roles_is_over_in_two_looks(monitor) -> None:
    monitor.state.stop("x", 0.0)
    monitor.tick()
    monitor.tick()
    assert monitor.state.phase is Phase.OVER


def test_a_role_that_comes_while_the_run_ends_is_stopped_too(monitor) -> None:
    monitor.hello("actor-0", "a")
    monitor.tick()
    monitor.state.stop("x", monitor.now)
    monitor.tick()
    monitor.hello("actor-1", "late")
    assert monitor.told_to_stop(0.6) == ["a", "late"]


def test_the_first_reason_to_stop_stays(monitor) -> None:
    monitor.state.stop("target_reached", 0.0)
    monitor.state.stop("SIGTERM", 1.0)
    assert monitor.state.reason == "target_reached"


def test_a_bound_of_the_run_ends_it(tools) -> None:
    monitor = Monitor(tools, RunConfig(max_updates=10))
    monitor.hello("trainer-0", "t")
    monitor.heartbeat("t", counters={"updates": 9})
    monitor.state.make_line(1.0)
    assert monitor.state.phase is Phase.RUNNING
    monitor.heartbeat("t", counters={"updates": 10})
    assert monitor.state.make_line(2.0)["updates"] == 10
    assert (monitor.state.phase, monitor.state.reason) == (Phase.STOPPING_ACTORS, "max_updates")


def _play_episodes(monitor, returns: list[float]) -> None:
    monitor.heartbeat("a", **ended_episodes(returns))
    monitor.state.make_line(monitor.now)


def _told_of_the_best(monitor, seconds: float = 0.0) -> list[tuple[bytes, float]]:
    return [
        (message.routing_id, message.message.values["return_mean"])
        for message in monitor.tick(seconds)
        if isinstance(message.message, DirectiveMessage) and message.message.kind == "SaveBest"
    ]


def test_the_trainer_is_told_of_each_mean_above_that_of_its_best_checkpoint(monitor) -> None:
    monitor.hello("actor-0", "a")
    monitor.hello("trainer-0", "t")
    monitor.tick()
    _play_episodes(monitor, [5.0] * 99)
    assert _told_of_the_best(monitor) == []  # not a hundred episodes yet
    _play_episodes(monitor, [5.0])
    assert _told_of_the_best(monitor) == [(b"t", 5.0)]
    assert _told_of_the_best(monitor) == []  # once for each line
    monitor.heartbeat("t", gauges={"best_return": 5.0})
    _play_episodes(monitor, [4.0] * 100)
    assert _told_of_the_best(monitor) == []
    assert monitor.state.line["best_return"] == 5.0
    for mean in (9.0, 10.0):
        _play_episodes(monitor, [mean] * 100)
        assert _told_of_the_best(monitor) == [(b"t", mean)]
    # a restarted trainer has lost its unwritten best
    monitor.heartbeat("t", final=True)
    monitor.hello("trainer-0", "new")
    monitor.heartbeat("new", gauges={"best_return": 9.5})
    monitor.state.make_line(monitor.now)
    assert _told_of_the_best(monitor) == [(b"new", 10.0)]


def test_the_last_episodes_count_before_the_trainer_is_told_to_stop(monitor) -> None:
    monitor.hello("actor-0", "a")
    monitor.hello("trainer-0", "t")
    _play_episodes(monitor, [5.0] * 100)
    monitor.heartbeat("t", gauges={"best_return": 5.0})
    monitor.state.stop("max_updates", monitor.now)
    monitor.tick()
    monitor.heartbeat("a", **ended_episodes([7.0] * 100), final=True)
    messages = [message.message for message in monitor.tick() if message.routing_id == b"t"]
    assert messages[-2:] == [SaveBest(7.0).message(2), StopRole("max_updates").message(3)]
