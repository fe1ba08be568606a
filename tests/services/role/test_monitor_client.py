"""A role's client of the monitor, on a real socket and with a clock that the test sets."""

from __future__ import annotations

import socket

import pytest
import zmq

from aclearn.wire import (
    Heartbeat,
    HeartbeatReply,
    MembershipReply,
    Peer,
    Peers,
    Server,
    Status,
    bind_router,
)
from services.role.monitor_client import MonitorClient, NumberTaken
from tests.support.monitor_line import Line
from tests.support.spoilt_connection import spoil_next


def test_hello_is_said_at_once_and_again_every_half_second_until_it_is_answered(
    roles, tools
) -> None:
    line = Line(roles, tools)
    assert line.next() == line.hello
    assert line.quiet()
    line.clock.now += 0.49
    assert line.quiet()
    line.clock.now += 0.02
    assert line.next() == line.hello
    line.say(Peers(4, [Peer("trainer", "trainer-0", "t", {"unrolls": "ipc:///u"})]))
    assert line.next() == line.heartbeats[0]
    assert line.membership.revision == 4
    assert [peer.incarnation for peer in line.membership.peers] == ["t"]
    line.clock.now += 1.0
    assert line.quiet()


def _events(caplog, name: str) -> list[str]:
    return [text for text in caplog.messages if text.startswith(f"event={name} ")]


def test_a_monitor_that_does_not_answer_for_five_seconds_is_said_once(roles, tools, caplog) -> None:
    line = Line(roles, tools)
    line.clock.now += 100.0  # it makes its environments, and has asked nothing yet
    assert line.next() == line.hello
    line.clock.now += 4.9
    assert line.next() == line.hello
    assert _events(caplog, "monitor_does_not_answer") == []
    line.clock.now += 0.2
    line.membership.tick()
    line.clock.now += 100.0
    line.membership.tick()
    [text] = _events(caplog, "monitor_does_not_answer")
    assert "run.name" in text
    assert "network.keys_dir" in text


def test_a_monitor_that_answers_is_not_complained_of(roles, tools, caplog) -> None:
    line = Line(roles, tools)
    line.introduce()
    assert isinstance(line.next(), Heartbeat)
    line.say(MembershipReply("hello", "unknown incarnation: say hello"))
    # before the next heartbeat is due
    assert line.client.transport.wait(tools.deadline_s), "the directive comes"
    line.clock.now += 100.0
    assert line.next() == line.hello
    assert _events(caplog, "monitor_does_not_answer") == []


def test_a_monitor_of_another_run_says_so_and_the_role_logs_it_once(roles, tools, caplog) -> None:
    line = Line(roles, tools)
    other = Server(line.monitor.transport, "another-run", "m")
    for number in (1, 2):
        tools.wait_until(
            lambda: line.membership.tick() or other.receive(0.05) or other.refused.total(),
            "it is refused",
        )
        assert other.refused == {"wrong_run": 1}, number
        other.refused.clear()
        assert line.client.transport.wait(tools.deadline_s), "the refusal comes"
        line.membership.tick()
        line.clock.now += 1.0
    [text] = _events(caplog, "message_refused")
    assert "reason=wrong_run" in text
    assert f"belongs to run '{line.context.run_name}', this is run 'another-run'" in text.replace(
        "\\", ""
    )


def test_heartbeats_go_out_at_their_interval(roles, tools) -> None:
    line = Line(roles, tools)
    line.introduce()
    assert line.next() == line.heartbeats[0]
    line.say(HeartbeatReply(1))
    assert line.quiet()
    line.clock.now += 1.9
    assert line.quiet()
    line.clock.now += 0.2
    assert line.next() == line.heartbeats[1]
    line.clock.now += 20.0  # a role that was busy for long sends one heartbeat, not ten
    assert line.next() == line.heartbeats[2]
    assert line.quiet()


def test_heartbeats_are_as_rare_as_the_monitor_tells_but_a_lost_monitor_is_tried_soon(
    roles, tools
) -> None:
    line = Line(roles, tools)  # of two seconds
    line.introduce()
    assert line.next() == line.heartbeats[0]
    line.say(HeartbeatReply(1, 9.0))
    assert line.quiet()
    line.clock.now += 8.9
    assert line.quiet()
    line.clock.now += 0.2
    assert line.next() == line.heartbeats[1]
    line.clock.now += 8.9  # the answer is late or lost
    assert line.quiet()
    line.say(HeartbeatReply(1, 0.1))  # never more often than configured
    assert line.next() == line.heartbeats[2]
    line.clock.now += 1.9
    assert line.quiet()
    line.say(HeartbeatReply(1, 50.0))
    assert line.quiet()
    line.monitor.close()

    def cannot_leave() -> bool:
        line.clock.now += 50.1
        line.membership.tick()
        return line.client.unsent.total() > 0

    tools.wait_until(cannot_leave, "the connection is gone")
    before = len(line.heartbeats)
    line.clock.now += 2.1
    line.membership.tick()
    assert len(line.heartbeats) == before + 1


def test_an_answer_on_its_way_does_not_delay_a_heartbeat_that_is_hastened(roles, tools) -> None:
    line = Line(roles, tools)
    line.introduce()
    assert line.next() == line.heartbeats[0]
    line.membership.hasten()
    line.say(HeartbeatReply(1, 9.0))
    assert line.client.transport.wait(tools.deadline_s), "the answer comes"
    assert line.next() == line.heartbeats[1]


def test_a_heartbeat_reply_of_another_revision_makes_the_role_ask_for_the_peers(
    roles, tools
) -> None:
    line = Line(roles, tools)
    line.introduce(revision=1)
    assert isinstance(line.next(), Heartbeat)
    line.say(HeartbeatReply(1))
    assert line.quiet()
    line.say(HeartbeatReply(2))
    line.clock.now += 0.5
    assert line.next() == line.hello


def test_a_process_whose_name_is_taken_waits_and_says_why_once(roles, tools, caplog) -> None:
    line = Line(roles, tools)
    for _ in range(2):
        assert line.next() == line.hello
        line.say(MembershipReply("wait", "actor-0 is process 7 on box"))
        assert line.client.transport.wait(tools.deadline_s), "the directive comes"
        line.clock.now += 100.0  # far beyond the reported silence
    line.introduce()
    assert line.membership.stop_reason is None
    [text] = _events(caplog, "name_is_taken")
    assert "actor-0 is process 7 on box" in text
    assert _events(caplog, "monitor_does_not_answer") == []


def test_a_member_whose_key_is_full_at_a_new_monitor_goes_on_and_asks_again(
    roles, tools, caplog
) -> None:
    line = Line(roles, tools)
    line.introduce()
    line.next()
    line.say(MembershipReply("hello", "unknown incarnation"))
    for _ in range(2):
        assert line.next() == line.hello
        line.say(MembershipReply("full", "its key is for at most 2 processes"))
        assert line.client.transport.wait(tools.deadline_s), "the answer comes"
        line.clock.now += 100.0
    line.introduce()
    assert line.membership.stop_reason is None
    assert len(_events(caplog, "waits_for_a_place")) == 1


def test_a_process_whose_name_was_taken_over_leaves(roles, tools) -> None:
    line = Line(roles, tools)
    line.introduce()
    line.next()
    line.say(MembershipReply("wait", "actor-0 is process 7 on box"))
    tools.wait_until(lambda: line.membership.tick() or line.membership.stop_reason, "it stops")
    assert line.membership.stop_reason == "actor-0 is process 7 on box"


def test_messages_that_make_no_sense_are_ignored(roles, tools) -> None:
    line = Line(roles, tools)
    line.introduce()
    line.next()
    line.say(Status("{}"))
    line.clock.now += 2.0
    assert line.next() == line.heartbeats[1]


def test_the_last_heartbeat_is_final_and_still_leaves_the_socket(roles, tools) -> None:
    line = Line(roles, tools)
    line.introduce()
    line.next()
    line.membership.leave()
    _, envelope = tools.next_message(line.monitor)
    assert envelope.message.final
    assert line.client.transport.socket.closed


def test_a_process_whose_number_another_one_has_asks_for_another_and_does_not_wait(
    roles, tools
) -> None:
    line = Line(roles, tools)
    membership = MonitorClient(
        line.client,
        hello=line.hello,
        heartbeat=line._heartbeat,
        heartbeat_every_s=2.0,
        number_given=True,
        clock=line.clock,
    )
    tools.next_message(line.monitor, membership.tick)
    line.say(MembershipReply("wait", "actor-0 lives"))
    line.client.transport.wait(tools.deadline_s)
    with pytest.raises(NumberTaken, match="actor-0 lives"):
        membership.tick()


def test_a_connection_that_libzmq_has_given_up_is_made_anew(roles, tools) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    context, clock = roles("actor-0"), tools.Clock()
    membership = MonitorClient(
        client := context.connect(address),
        hello=context.hello({}),
        heartbeat=Heartbeat,
        heartbeat_every_s=2.0,
        clock=clock,
    )
    membership.tick()
    spoil_next(listener)
    own = zmq.Context()
    router, _ = bind_router(own, address)
    try:
        assert not client.transport.wait_for_room(0.3)

        def arrives() -> bool:
            clock.now += 0.1
            membership.tick()
            return bool(router.poll(20))

        began = clock.now
        tools.wait_until(arrives, "a hello arrives")
        assert clock.now - began >= 5.0
    finally:
        router.close(0)
        own.term()
