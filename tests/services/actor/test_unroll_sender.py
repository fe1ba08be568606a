"""Sending unrolls to a trainer's real socket: back-pressure, refusals, a trainer that dies."""

from __future__ import annotations

import time

import pytest

from aclearn.wire import ErrorReply, Peer, UnrollReply
from services.actor.unroll_sender import UnrollSender
from services.role.request_client import PeerLink


class Shipping:
    """A sender and its trainer; the sender's clock is `now`."""

    def __init__(self, roles, tools, most: int = 2) -> None:
        self.roles, self.tools, self.known = roles, tools, tools.KnownPeers()
        self.actor = roles("actor-0")
        self.link = PeerLink(self.actor, "unrolls")
        self.now = 0.0
        self.sender = UnrollSender(
            self.link, self.known, max_in_flight=most, clock=lambda: self.now
        )
        self.unroll = tools.make_unroll()
        self.start_trainer()

    def start_trainer(self) -> None:
        context = self.roles("trainer-0")
        self.trainer, endpoint = context.serve("unrolls", array_bytes=1 << 20)
        self.known.learn(Peer("trainer", "trainer-0", context.incarnation, {"unrolls": endpoint}))

    def send(self, sequence: int) -> None:
        sent = lambda: self.sender.send(sequence, [self.unroll], 0.02)  # noqa: E731
        self.tools.wait_until(sent, "it is sent")

    def send_unless(self, sequence: int, tries: int = 3) -> bool:
        """Whether it was sent in one of this many attempts."""
        return any(self.sender.send(sequence, [self.unroll], 0.02) for _ in range(tries))

    def poll(self) -> None:
        self.now += 0.001  # for a connection that is not there at once
        self.sender.poll()

    def arrived(self) -> int:
        _, envelope = self.tools.next_message(self.trainer, self.poll)
        return envelope.sequence

    def answer(
        self, sequence: int, accepted: bool = True, reason: str = "", *, last: bool = False
    ) -> None:
        reply = UnrollReply(sequence, accepted, reason, last)
        assert self.trainer.send(self.actor.routing_id, reply)
        assert self.link.client.transport.wait(self.tools.deadline_s)
        self.sender.poll()


@pytest.fixture
def shipping(roles, tools) -> Shipping:
    return Shipping(roles, tools)


def test_unrolls_go_out_in_order_up_to_the_bound(shipping) -> None:
    for sequence in (1, 2):
        shipping.send(sequence)
    assert not shipping.sender.has_room()
    assert not shipping.send_unless(3)
    assert shipping.sender.in_flight == 2
    assert [shipping.arrived(), shipping.arrived()] == [1, 2]
    assert shipping.tools.nothing_comes(shipping.trainer, shipping.sender.poll)


def test_near_the_bound_and_until_the_first_answer_there_is_one_unroll_at_a_time(shipping) -> None:
    assert not shipping.sender.waits
    for sequence, last, waits in ((1, False, True), (2, True, False), (3, False, True)):
        shipping.send(sequence)
        assert shipping.sender.waits == waits
        shipping.arrived()
        shipping.answer(sequence, last=last)
        assert not shipping.sender.waits


def test_the_sender_waits_until_the_acknowledgement_comes(shipping) -> None:
    shipping.send(1)
    shipping.send(2)
    shipping.arrived()
    assert not shipping.send_unless(3)
    shipping.trainer.send(shipping.actor.routing_id, UnrollReply(1, True, ""))
    assert shipping.sender.send(3, [shipping.unroll], shipping.tools.deadline_s)
    assert [shipping.arrived(), shipping.arrived()] == [2, 3]


def test_a_refusal_makes_room_too_and_is_counted_by_reason(shipping) -> None:
    shipping.send(1)
    shipping.send(2)
    shipping.arrived()
    shipping.answer(1, accepted=False, reason="lag")
    shipping.answer(2, accepted=False, reason="old_generation")
    assert shipping.sender.in_flight == 0
    assert shipping.sender.refused == {"lag": 1, "old_generation": 1}
    assert shipping.sender.gauges()["refused_unrolls"] == 2.0


def test_an_answer_to_nothing_and_an_error_change_nothing(shipping) -> None:
    shipping.send(5)
    shipping.arrived()
    shipping.answer(4)
    assert shipping.trainer.send(shipping.actor.routing_id, ErrorReply("bad_header", ""))
    assert shipping.link.client.transport.wait(shipping.tools.deadline_s)
    shipping.sender.poll()
    assert shipping.sender.in_flight == 1
    assert shipping.sender.refused == {}


def test_a_trainer_that_was_started_again_is_sent_what_the_dead_one_did_not_answer(
    shipping,
) -> None:
    shipping.send(1)
    shipping.send(2)
    shipping.start_trainer()
    assert [shipping.arrived(), shipping.arrived()] == [1, 2]
    for sequence in (1, 2):
        shipping.answer(sequence, accepted=False, reason="old_generation")
    shipping.send(3)
    assert shipping.arrived() == 3


def test_without_a_trainer_the_sender_waits_without_spinning(roles, tools) -> None:
    sender = UnrollSender(
        PeerLink(roles("actor-0"), "unrolls"), tools.KnownPeers(), max_in_flight=2
    )
    began = time.monotonic()
    assert not sender.has_room()
    assert not sender.send(1, [tools.make_unroll()], 0.3)
    assert time.monotonic() - began >= 0.3
    assert sender.in_flight == 0


def test_what_a_dead_trainer_cannot_take_is_sent_to_its_successor(shipping) -> None:
    shipping.send(1)
    shipping.arrived()
    shipping.answer(1)
    shipping.trainer.close()
    shipping.tools.wait_until(
        lambda: not shipping.link.client.transport.wait_for_room(0.01),
        "the connection is seen to be lost",
    )
    shipping.send(2)
    assert shipping.sender.in_flight == 1
    shipping.start_trainer()
    assert shipping.arrived() == 2


def test_a_new_unroll_does_not_overtake_one_that_could_not_leave_a_new_connection(shipping) -> None:
    shipping.send(1)
    assert shipping.arrived() == 1
    shipping.now += 3.0
    shipping.sender.poll()  # no answer: a new connection, over which nothing leaves at once
    assert shipping.link.client.transport.wait_for_room(shipping.tools.deadline_s)
    assert shipping.sender.send(2, [shipping.unroll], 0.0)
    shipping.now += 1.0
    assert [shipping.arrived(), shipping.arrived()] == [1, 2]


def test_an_unroll_without_an_answer_is_sent_again_with_its_number_until_there_is_one(
    shipping,
) -> None:
    shipping.send(7)
    assert shipping.arrived() == 7
    for again_at in (3.0, 9.0):
        shipping.now = again_at - 0.1
        assert shipping.tools.nothing_comes(shipping.trainer, shipping.sender.poll)
        shipping.now = again_at
        assert shipping.arrived() == 7
    assert shipping.sender.in_flight == 1
    shipping.answer(7)
    for _ in range(2):  # those of the copies
        shipping.answer(7, accepted=False, reason="duplicate")
    assert shipping.sender.gauges() == {
        "in_flight_unrolls": 0.0, "refused_unrolls": 0.0, "repeated_unrolls": 2.0
    }  # fmt: skip
