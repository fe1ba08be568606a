"""A role's client of the monitor, on a real socket and with a clock that the test sets."""

from __future__ import annotations

import socket

import pytest
import zmq

from aclearn.control.directives import SetMix, StopRole
from aclearn.types import EpisodeCohort
from aclearn.wire import (
    DirectiveAck,
    DirectiveMessage,
    Heartbeat,
    HeartbeatReply,
    Hello,
    MembershipReply,
    Peer,
    Peers,
    PolicyNumbers,
    Server,
    Status,
    bind_router,
)
from services.role.monitor_client import MonitorClient, NumberTaken
from tests.support.spoilt_connection import spoil_next


class Line:
    """One role, and the monitor's end of its connection."""

    def __init__(self, roles, tools, **keys) -> None:
        self.tools, self.clock = tools, tools.Clock()
        self.monitor = roles("monitor-0").serve_at(roles.monitor, (Hello, Heartbeat, DirectiveAck))
        self.context = roles("actor-0")
        self.client = self.context.connect(roles.monitor)
        self.heartbeats: list[Heartbeat] = []
        self.returns: list[float] = []
        self.policies: dict[str, PolicyNumbers] = {}
        self.shares: list[float] = []
        self.hello = self.context.hello({"unrolls": "ipc:///u"})
        # connected, so that the speed of connecting has no effect below
        tools.wait_until(
            lambda: self.client.transport.wait_for_room(0.1), "the monitor is connected"
        )
        self.membership = MonitorClient(
            self.client,
            hello=self.hello,
            heartbeat=self._heartbeat,
            heartbeat_every_s=2.0,
            on={SetMix: self._set_mix},
            clock=self.clock,
            **keys,
        )

    def _set_mix(self, directive: SetMix) -> None:
        if directive.compressed_share == 0.75:
            raise ValueError("no such\nmix")
        self.shares.append(directive.compressed_share)

    def _heartbeat(self) -> Heartbeat:
        heartbeat = Heartbeat(
            {"number": len(self.heartbeats)},
            episode_returns=self.returns,
            policies=self.policies,
        )
        self.returns, self.policies = [], {}
        self.heartbeats.append(heartbeat)
        return heartbeat

    def next(self):
        """The monitor's next message; the role ticks meanwhile."""
        routing_id, envelope = self.tools.next_message(self.monitor, self.membership.tick)
        assert envelope.incarnation == self.context.incarnation
        assert routing_id == self.context.routing_id
        return envelope.message

    def quiet(self) -> bool:
        return self.tools.nothing_comes(self.monitor, self.membership.tick)

    def say(self, message) -> None:
        assert self.monitor.send(self.context.routing_id, message)

    def introduce(self, revision: int = 1) -> None:
        assert isinstance(self.next(), Hello)
        self.say(Peers(revision, []))
        self.tools.wait_until(self._tick_and_know(revision), "the peers are known")

    def _tick_and_know(self, revision: int):
        def look() -> bool:
            self.client.transport.wait(0.1)
            self.membership.tick()
            return self.membership.revision == revision

        return look


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


def test_episodes_of_a_heartbeat_that_could_not_be_sent_go_with_the_next_one(tools) -> None:
    class Unwilling:
        """A client without a peer, then with one."""

        def __init__(self) -> None:
            self.connected, self.sent = False, []
            self.inbox = [Peers(1, [])]

        def receive(self, timeout_s):
            if not self.inbox:
                return None
            return type("Envelope", (), {"message": self.inbox.pop()})

        def send(self, message, *, timeout_s=0.0):
            if self.connected:
                self.sent.append(message)
            return self.connected

    client, clock = Unwilling(), tools.Clock()
    policies = ["original", "mixed", "compressed", "original", "original"]
    heartbeats = [
        Heartbeat({"episodes": 2 + n}, episode_returns=[float(n)], episode_policies=[policies[n]])
        for n in range(5)
    ]
    queue = iter(heartbeats)
    membership = MonitorClient(
        client,
        hello=Hello("actor", 0, "box", 1, {}),
        heartbeat=lambda: next(queue),
        heartbeat_every_s=1.0,
        clock=clock,
    )
    for connected in (False, False, True, True):
        client.connected = connected
        membership.tick()
        clock.now += 1.0
    [third, fourth] = client.sent
    assert third.episode_returns == [0.0, 1.0, 2.0]
    assert third.episode_policies == policies[:3]
    assert third.counters == {"episodes": 4}
    assert fourth == heartbeats[3]


def test_episodes_of_each_policy_wait_for_its_next_heartbeat(roles, tools) -> None:
    line = Line(roles, tools)
    line.introduce()
    line.next()

    def played(*returns: float) -> PolicyNumbers:
        cohort = EpisodeCohort(1.0, len(returns), sum(returns), 4)
        return PolicyNumbers(episode_returns=list(returns), cohorts=[cohort])

    line.policies = {"tagger": played(*range(700)), "runner": played(-1.0)}
    line.clock.now += 2.0
    told = line.next()
    assert told.policies["tagger"].episode_returns == [float(n) for n in range(200, 700)]  # half
    assert told.policies["runner"].episode_returns == [-1.0] and not told.episode_returns
    line.say(MembershipReply("hello", "unknown"))  # a monitor that has not used it
    line.policies = {"tagger": played(5.0), "runner": played(-2.0)}
    line.introduce()
    line.clock.now += 2.0
    again = line.next()
    assert again.policies["runner"].episode_returns == [-1.0, -2.0]
    assert again.policies["runner"].cohorts == [
        EpisodeCohort(1.0, 1, -1.0, 4),
        EpisodeCohort(1.0, 1, -2.0, 4),
    ]
    assert again.policies["tagger"].episode_returns[-2:] == [699.0, 5.0]


def test_episodes_that_a_new_monitor_has_not_taken_are_told_again(roles, tools) -> None:
    line = Line(roles, tools)
    line.returns = [1.0]
    line.introduce()
    assert line.next().episode_returns == [1.0]
    line.say(HeartbeatReply(1))
    assert line.client.transport.wait(tools.deadline_s)
    line.returns = [2.0]
    line.clock.now += 2.1
    assert line.next().episode_returns == [2.0]
    # a restarted monitor, which does not know the heartbeat's sender
    line.say(MembershipReply("hello", ""))
    assert line.next() == line.hello
    line.say(Peers(2, []))
    tools.wait_until(line._tick_and_know(2), "the new monitor is known")
    line.returns = [3.0]
    line.clock.now += 2.1
    assert line.next().episode_returns == [2.0, 3.0]


def test_each_directive_is_obeyed_once_and_acknowledged_as_often_as_it_comes(roles, tools) -> None:
    line = Line(roles, tools)
    line.introduce()
    line.next()
    # the last one of them is in force again
    for number, directive in ((7, SetMix(0.25)), (8, SetMix(1.0)), (7, SetMix(0.25))):
        for _ in range(3):
            line.say(directive.message(number))
            assert line.next() == DirectiveAck(number)
    assert line.shares == [0.25, 1.0, 0.25]
    line.say(StopRole("x").message(9))
    assert line.next() == DirectiveAck(9)
    assert line.membership.stop_reason == "x" and line.membership.run_is_over
    line.say(StopRole("").message(10))  # without a reason it is a stop too
    assert line.next() == DirectiveAck(10)
    assert line.membership.stop_reason == "stop"


@pytest.mark.parametrize(
    ("message", "refusal"),
    [
        (DirectiveMessage(9, "Explode", {}), "Explode: it is not obeyed here; expected one of St"),
        (DirectiveMessage(9, "E" * 1024, {"x": "y" * 40_000}), "E" * 64 + ": it is not obeyed"),
        (DirectiveMessage(9, "SetMix", {}), "SetMix: expected a map with exactly ['compressed_sh"),
        (DirectiveMessage(9, "SetMix", {"compressed_share": "1"}), "SetMix: expected a float, got"),
        (DirectiveMessage(9, "SetMix", {"compressed_share": 1.5}), "SetMix: expected a float from"),
        (SetMix(0.75).message(9), "SetMix: no such mix"),
    ],
)
def test_a_directive_that_the_role_does_not_obey_is_refused_and_the_role_goes_on(
    roles, tools, message, refusal
) -> None:
    line = Line(roles, tools)
    line.introduce()
    line.next()
    line.say(message)
    answer = line.next()
    assert answer.id == 9 and answer.refusal.startswith(refusal), answer
    assert len(answer.refusal) <= 300
    line.say(SetMix(0.5).message(10))
    assert line.next() == DirectiveAck(10)
    assert line.shares == [0.5] and line.membership.stop_reason is None


def test_a_heartbeat_tells_of_no_more_episodes_than_fit_into_a_message(roles, tools) -> None:
    line = Line(roles, tools)
    line.introduce()
    line.next()
    played = [float(n) for n in range(7000)]
    line.returns = list(played)
    line.clock.now += 2.0
    told = line.next()
    assert told.episode_returns == played[-1000:]


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


def test_a_rank_that_waits_for_the_others_leaves_directives_for_the_trainer(roles, tools) -> None:
    line = Line(roles, tools, postpones=True)
    line.introduce()
    line.next()
    line.say(DirectiveMessage(8, "SetLearningRate", {"rate": 0.1}))
    assert line.quiet()
    line.say(StopRole("x").message(9))
    assert line.next() == DirectiveAck(9)
