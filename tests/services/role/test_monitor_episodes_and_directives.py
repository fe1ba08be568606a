"""Episodes and directives between a role and the monitor: none is lost, and none counts twice."""

from __future__ import annotations

import pytest

from aclearn.control.directives import SetMix, StopRole
from aclearn.types import EpisodeCohort
from aclearn.wire import (
    DirectiveAck,
    DirectiveMessage,
    Heartbeat,
    HeartbeatReply,
    Hello,
    MembershipReply,
    Peers,
    PolicyNumbers,
)
from services.role.monitor_client import MonitorClient
from tests.support.monitor_line import Line


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


def test_a_heartbeat_tells_of_no_more_episodes_than_fit_into_a_message(roles, tools) -> None:
    line = Line(roles, tools)
    line.introduce()
    line.next()
    played = [float(n) for n in range(7000)]
    line.returns = list(played)
    line.clock.now += 2.0
    told = line.next()
    assert told.episode_returns == played[-1000:]


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


def test_a_rank_that_waits_for_the_others_leaves_directives_for_the_trainer(roles, tools) -> None:
    line = Line(roles, tools, postpones=True)
    line.introduce()
    line.next()
    line.say(DirectiveMessage(8, "SetLearningRate", {"rate": 0.1}))
    assert line.quiet()
    line.say(StopRole("x").message(9))
    assert line.next() == DirectiveAck(9)
