"""The monitor's pure steps: hellos, heartbeats, silence, status."""

from __future__ import annotations

import json

import pytest

from aclearn.wire import (
    HeartbeatReply,
    Hello,
    MembershipReply,
    Number,
    NumberRequest,
    Peer,
    Peers,
    Status,
    StatusRequest,
    encode,
)
from services.monitor.registry import OutgoingMessage
from services.monitor.status_report import member_names
from services.wiring import ENDPOINTS
from tests.support.monitor import Monitor


def test_a_hello_is_answered_with_all_peers_and_sent_to_all_members(monitor) -> None:
    monitor.hello("actor-0", "a")
    assert monitor.tick() == []  # actors serve no other role
    [message] = monitor.hello("trainer-0", "t", unrolls="ipc:///u", weights="ipc:///w")
    trainer = Peer("trainer", "trainer-0", "t", {"unrolls": "ipc:///u", "weights": "ipc:///w"})
    assert message == OutgoingMessage(b"t", Peers(1, [trainer]))
    assert monitor.tick() == [
        OutgoingMessage(b"a", message.message),
        OutgoingMessage(b"t", message.message),
    ]
    assert monitor.tick() == []  # told once


def test_a_heartbeat_is_answered_with_the_revision(monitor) -> None:
    monitor.hello("actor-0", "a")
    monitor.hello("trainer-0", "t", unrolls="ipc:///u")
    assert monitor.heartbeat("a", counters={"env_steps": 120}) == [
        OutgoingMessage(b"a", HeartbeatReply(1, 0.5))
    ]
    assert monitor.state.make_line(1.0)["env_steps"] == 120


def test_a_second_trainer_waits_until_the_first_is_not_heard_which_leaves_when_it_comes_back(
    monitor,
) -> None:
    monitor.hello("trainer-0", "a", pid=17)
    monitor.look(1.5)
    monitor.heartbeat("a")
    [message] = monitor.hello("trainer-0", "b")
    assert (message.routing_id, message.message.action) == (b"b", "wait")
    assert "trainer-0 is process 17 on box, which lives" in message.message.reason
    assert [member.incarnation for member in monitor.registry.members] == ["a"]
    monitor.look(2.1)
    [message] = monitor.hello("trainer-0", "b")
    assert isinstance(message.message, Peers)
    assert "trainer-0 was restarted" in monitor.state.status()["events"]
    [message] = monitor.heartbeat("a")
    assert message.message == MembershipReply("hello", "unknown incarnation: say hello")
    [message] = monitor.hello("trainer-0", "a")
    assert (message.routing_id, message.message.action) == (b"a", "wait")
    assert [member.incarnation for member in monitor.registry.members] == ["b"]
    monitor.state.stop("x", monitor.now)
    assert monitor.hello("trainer-0", "a") == [OutgoingMessage(b"a", MembershipReply("stop", "x"))]


def test_a_number_is_handed_out_once_the_living_have_said_theirs(tools) -> None:
    monitor = Monitor(tools, numbers_from=3.0)
    assert monitor.take("n", NumberRequest("actor")) == []
    monitor.hello("actor-0", "a")
    monitor.look(3.0)
    assert monitor.take("n", NumberRequest("actor")) == [OutgoingMessage(b"n", Number(1))]
    [message] = monitor.take("n", NumberRequest("trainer"))
    assert message.message == MembershipReply(
        "leave", "a run has one trainer, trainer-0, which asks for no number"
    )
    [message] = monitor.take("n", NumberRequest("supervisor"))
    assert message.message.action == "leave"
    assert "its role is unknown; expected one of monitor, trainer" in message.message.reason
    monitor.state.stop("x", monitor.now)
    assert monitor.take("m", NumberRequest("actor")) == [
        OutgoingMessage(b"m", MembershipReply("stop", "x"))
    ]


def test_whoever_heartbeats_without_a_hello_is_asked_for_one_and_not_counted(monitor) -> None:
    [message] = monitor.heartbeat("ghost", counters={"env_steps": 120})
    assert message.routing_id == b"ghost"
    assert message.message == MembershipReply("hello", "unknown incarnation: say hello")
    assert monitor.state.make_line(1.0)["env_steps"] == 0


def test_a_role_that_was_started_again_replaces_its_dead_self(monitor) -> None:
    monitor.hello("trainer-0", "t", unrolls="ipc:///u")
    monitor.hello("actor-0", "old")
    monitor.heartbeat("old", counters={"env_steps": 50})
    monitor.look(2.1)
    [message] = monitor.hello("actor-0", "new")
    assert [peer.incarnation for peer in message.message.peers] == ["t"]
    assert "actor-0 was restarted" in monitor.state.status()["events"]
    # the dead actor's steps that no trainer saw are lost, not in flight
    line = monitor.state.make_line(1.0)
    assert (line["env_steps"], line["in_flight_steps"]) == (50, 0)
    assert line["dropped_steps"] == {"actor_lost": 50}
    [message] = monitor.heartbeat("old")
    assert message.message.action == "hello"


def test_silent_members_are_taken_out_and_the_others_get_the_new_list(monitor) -> None:
    monitor.hello("predictor-0", "a", pid=17, predictions="ipc:///a")
    monitor.hello("predictor-1", "b", predictions="ipc:///b")
    monitor.look(15.0)
    monitor.heartbeat("b")
    assert monitor.look(5.0) == []
    [message] = monitor.look(0.1)
    assert message.routing_id == b"b"
    assert [peer.incarnation for peer in message.message.peers] == ["b"]
    assert json.loads(json.dumps(monitor.state.status()))["silent"] == [["predictor-0", 17]]
    # it was only slow: it is asked for a hello and is back
    [message] = monitor.heartbeat("a")
    assert message.message.action == "hello"
    monitor.hello("predictor-0", "a")
    assert [member.name for member in monitor.registry.members] == ["predictor-0", "predictor-1"]


def test_a_monitor_that_was_suspended_itself_takes_no_role_for_silent(monitor) -> None:
    monitor.hello("predictor-0", "a", predictions="ipc:///a")
    monitor.hello("predictor-1", "b", predictions="ipc:///b")
    monitor.look(12.0)
    assert monitor.tick(600.0) == []  # stopped and continued, with its machine or alone
    assert monitor.state.status()["events"] == ["the monitor itself was suspended for 600.0 s"]
    monitor.heartbeat("b")
    # of the twenty seconds it was silent for twelve and a quarter of the bound
    assert monitor.look(3.0) == []
    [message] = monitor.look(0.1)
    assert [peer.incarnation for peer in message.message.peers] == ["b"]


@pytest.mark.parametrize(
    ("hello", "incarnation", "what"),
    [
        (Hello("visitor", 0, "box", 1, {}), "x", "its role is unknown; expected one of monitor"),
        (Hello("actor", 1_000_000, "box", 1, {}), "x", "its number is above 999999"),
        (Hello("trainer", 1, "box", 1, {}), "x", "a run has one trainer, trainer-0"),
        (Hello("monitor", 1, "box", 1, {}), "x", "a run has one monitor, monitor-0"),
        (Hello("actor", 9, "box", 1, {}), "x" * 65, "its incarnation has more than 64"),
        (Hello("actor", 9, "box", 1, dict.fromkeys("abcdefghi", "")), "x", "9 endpoints"),
        (Hello("actor", 9, "box", 1, {"a": "b" * 257}), "x", "of at most 256 bytes"),
        (
            Hello("actor", 9, "box", 1, {"unrolls": "tcp://127.0.0.1:1"}),
            "x",
            "a process of role actor serves no unrolls",
        ),
    ],
)
def test_a_hello_that_takes_too_much_room_in_the_list_of_all_is_refused(
    monitor, hello, incarnation, what
) -> None:
    monitor.hello("trainer-0", "t")
    [message] = monitor.take(incarnation, hello)
    assert message.message.action == "leave"
    assert what in message.message.reason
    assert [member.name for member in monitor.registry.members] == ["trainer-0"]


def test_a_refusal_is_logged_once_for_each_process_and_reason(monitor) -> None:
    for number in (1, 1, 2, 2):
        for incarnation in ("a", "b"):
            [message] = monitor.take(incarnation, Hello("trainer", number, "box", 7, {}))
            assert message.message.action == "leave"
    monitor.take("a", Hello("visitor", 0, "box", 7, {}))
    told = list(monitor.state.report.events)
    assert [text.split(" at box")[0] for text in told] == ["trainer-1", "trainer-1", "visitor-0"]


def test_a_heartbeat_with_endless_gauges_is_taken_without_them_and_still_fits_a_status(
    monitor,
) -> None:
    monitor.hello("compressor-0", "c")
    gauges = {"long" * 17: 0.5} | {f"{'g' * 60}{i:03}": float(i) for i in range(500)}
    for _ in range(2):
        monitor.heartbeat("c", gauges=gauges)
    line = monitor.state.make_line(1.0)
    taken = [name for name in line if name.startswith("compressor_ggg")]
    assert len(taken) == 64 and f"compressor_{'long' * 17}" not in line
    [event] = monitor.state.status()["events"]
    assert event.startswith("compressor-0 reports too much")
    assert len(json.dumps(monitor.state.status())) < 48 * 1024


def test_a_status_that_no_message_could_carry_leaves_out_what_is_only_shown(monitor) -> None:
    monitor.hello("actor-0", "a")
    for n in range(20):
        monitor.take(
            f"x{n}", Hello("actor", 10**9, "ä" * 500, n, {})
        )  # six bytes a message in JSON
    for name in ("actor-7", "predictor-7", "compressor-7", "trainer-0"):
        role = name.split("-")[0]
        monitor.hello(name, role)
        labels = {f"{'l' * 60}{n:03}": 1.0 for n in range(200)}
        monitor.heartbeat(role, gauges=labels, waits=labels | {"total": 200.0}, parts=labels)
    monitor.state.make_line(1.0)
    for n in range(20):
        monitor.state.report.note(f"{n} " + 3000 * "x")
    [message] = monitor.take("cli", StatusRequest())
    assert encode(message.message, run="run-1", incarnation="m", sequence=1)
    status = json.loads(message.message.json)
    assert len(member_names(status["members"])) == 5 and status["line"] == {}
    # with the newest notes that fit
    assert [int(note.split()[0]) for note in status["notes"]] == list(range(4, 20))
    assert status["noted"] == 20


def test_the_status_of_thousands_has_their_names_as_ranges_and_leaves_out_their_process_ids(
    monitor,
) -> None:
    monitor.hello("trainer-0", "t")
    there = [n for n in range(3000) if n not in (7, 8, 2000)]
    for number in there:
        monitor.hello(f"actor-{number}", f"a{number}")
    monitor.state.make_line(1.0)
    [message] = monitor.take("cli", StatusRequest())
    assert encode(message.message, run="run-1", incarnation="m", sequence=1)
    status = json.loads(message.message.json)
    assert status["members"] == ["actor-0..6", "actor-9..1999", "actor-2001..2999", "trainer-0"]
    names = [*(f"actor-{number}" for number in there), "trainer-0"]
    assert member_names(status["members"]) == names
    assert status["pids"] == {} and status["line"]["time_s"] == 1.0


def test_names_that_no_monitor_tells_are_no_names_and_take_no_memory() -> None:
    assert member_names(["actor-0..99999999999"]) == [f"actor-{n}" for n in range(16_384)]
    wrong = ["actor", "actor-x", "actor-3..x", 7, "actor-5..3", "actor-" + "9" * 5000]
    assert member_names([*wrong, "b-c-2"]) == ["b-c-2"]


def test_a_role_whose_heartbeat_is_final_is_gone_at_once(monitor) -> None:
    monitor.hello("predictor-0", "a", predictions="ipc:///a")
    monitor.hello("predictor-1", "b", predictions="ipc:///b")
    monitor.tick()
    monitor.heartbeat("a", final=True)
    [message] = monitor.tick()
    assert [peer.incarnation for peer in message.message.peers] == ["b"]
    assert monitor.state.status()["silent"] == []


def test_the_status_lists_the_members_and_the_events(monitor) -> None:
    monitor.hello("actor-0", "a")
    monitor.state.make_line(3.0)
    [message] = monitor.take("cli", StatusRequest())
    assert isinstance(message.message, Status)
    status = json.loads(message.message.json)
    assert status["members"] == ["actor-0"]
    assert status["pids"] == {"box": {"actor-0": 1}}
    assert (status["phase"], status["reason"]) == ("running", None)
    assert status["line"]["time_s"] == 3.0
    monitor.state.stop("x", 3.0)
    assert monitor.state.status()["phase"] == "stopping actors"
    assert monitor.state.status()["events"] == ["run ends: x"]


@pytest.mark.parametrize(("policies", "gap"), [(["original", "compressed"], 9.0), ([], None)])
def test_the_reward_gap_is_that_of_the_episodes_in_heartbeats(monitor, policies, gap) -> None:
    monitor.hello("actor-0", "a")
    for _ in range(10):
        monitor.heartbeat("a", episode_returns=[10.0, 1.0], episode_policies=policies)
    line = monitor.state.make_line(1.0)
    assert line["reward_gap"] == gap
    assert monitor.state.make_line(2.0)["reward_gap"] == gap  # counted once


def test_the_monitor_takes_each_message_that_its_server_accepts(monitor) -> None:
    assert set(monitor.state._taken) == set(ENDPOINTS["monitor"].accepts)
