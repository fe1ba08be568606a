"""Actions from a predictor, over a real socket."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from aclearn.rollout import ActInput
from aclearn.telemetry import WaitMeter
from aclearn.types import OBSERVATION, ActionSpec, PolicyVersion
from aclearn.wire import ActCancel, ActReply, ActRequest, ErrorReply, Peer
from services.actor.predictor_client import PredictorClient
from services.role.request_client import PeerLink


class Asking:
    """Predicted actions, and their predictor."""

    def __init__(self, roles, tools, state=()) -> None:
        self.roles, self.tools = roles, tools
        self.clock, self.known = tools.Clock(), tools.KnownPeers()
        self.actor = roles("actor-0")
        self.link = PeerLink(self.actor, "predictions")
        self.actions = PredictorClient(
            self.link,
            self.known,
            WaitMeter(),
            ActionSpec.discrete(3),
            state=state,
            clock=self.clock,
        )
        self.start_predictor()

    def start_predictor(self) -> None:
        context = self.roles("predictor-0")
        self.predictor, endpoint = context.serve("predictions", array_bytes=1 << 20)
        endpoints = {"predictions": endpoint}
        self.known.learn(Peer("predictor", "predictor-0", context.incarnation, endpoints))

    def request(self, group: int, size: int) -> None:
        self.actions.request(group, ActInput({OBSERVATION: np.full((size, 3), group, np.float32)}))

    def asked(self) -> ActRequest:
        _, envelope = self.tools.next_message(self.predictor, self.actions.poll)
        return envelope.message

    def asked_twice(self) -> list[ActRequest]:
        """Two requests, by number: one that could not be sent yet comes after the next."""
        return sorted((self.asked(), self.asked()), key=lambda request: request.request)

    def answer(self, request: int, size: int, version: int = 5) -> None:
        reply = ActReply(
            request,
            1,
            version,
            np.arange(size, dtype=np.int32) % 4,
            np.full(size, -0.25 * version, np.float32),
        )
        self.say(reply)

    def say(self, message) -> None:
        assert self.predictor.send(self.actor.routing_id, message)
        assert self.link.client.transport.wait(self.tools.deadline_s)
        self.actions.poll()

    def collect(self, group: int):
        """The answer if there is one; None without a long wait."""
        for _ in range(3):
            self.actions.poll()
            if (chosen := self.actions.take(group, 0.02)) is not None:
                return chosen
        return None

    def quiet(self) -> bool:
        return self.tools.nothing_comes(self.predictor, self.actions.poll)


@pytest.fixture
def asking(roles, tools) -> Asking:
    return Asking(roles, tools)


def test_the_answers_of_several_groups_find_their_way(asking) -> None:
    asking.request(0, 2)
    asking.request(1, 3)
    requests = asking.asked_twice()
    assert [request.size for request in requests] == [2, 3]
    np.testing.assert_array_equal(
        requests[1].observations["observation"], np.ones((3, 3), np.float32)
    )
    asking.answer(requests[1].request, 3, version=8)  # in any order
    asking.answer(requests[0].request, 2, version=7)
    first, second = asking.collect(0), asking.collect(1)
    assert (first.at, second.at) == (PolicyVersion(1, 7), PolicyVersion(1, 8))
    assert (first.actions.tolist(), second.actions.tolist()) == ([0, 1], [0, 1, 2])
    assert first.log_prob.tolist() == [-1.75, -1.75]
    assert asking.actions.predictions == 5
    assert asking.actions.gauges() == {"repeated_requests": 0}


def test_actions_are_waited_for_and_not_longer_than_is_told(asking) -> None:
    asking.request(0, 2)
    request = asking.asked()
    assert asking.actions.take(0, 0.0) is None
    zeros = np.zeros(2, np.float32)
    reply = ActReply(request.request, 0, 1, zeros.astype(np.int32), zeros)
    asking.predictor.send(asking.actor.routing_id, reply)
    choice = asking.actions.take(0, asking.tools.deadline_s)
    assert choice.at == PolicyVersion(0, 1)


def test_a_late_answer_to_an_older_request_is_ignored(asking) -> None:
    asking.request(0, 2)
    old = asking.asked()
    asking.request(0, 2)  # e.g. the group was reset, and asks again
    assert asking.asked() == ActCancel(old.request)
    new = asking.asked()
    assert new.request > old.request
    asking.answer(old.request, 2, version=3)
    assert asking.collect(0) is None
    asking.answer(new.request, 2, version=4)
    assert asking.collect(0).at == PolicyVersion(1, 4)


def test_an_actor_that_leaves_takes_back_what_is_not_answered(asking) -> None:
    for group in range(3):
        asking.request(group, 1)
    numbers = sorted(asking.asked().request for _ in range(3))
    asking.answer(numbers[1], 1)
    asking.actions.close()
    cancelled = [
        asking.tools.next_message(asking.predictor, lambda: None)[1].message for _ in range(2)
    ]
    assert cancelled == [ActCancel(numbers[0]), ActCancel(numbers[2])]


def test_a_request_without_an_answer_is_asked_again_and_answered_once(asking) -> None:
    asking.request(0, 2)
    first = asking.asked()
    asking.clock.now += 2.9
    assert asking.quiet()
    asking.clock.now += 0.2
    again = asking.asked()
    assert again.request == first.request
    shown, before = again.observations["observation"], first.observations["observation"]
    np.testing.assert_array_equal(shown, before)
    assert asking.actions.gauges() == {"repeated_requests": 1}
    asking.answer(first.request, 2, version=3)
    asking.answer(again.request, 2, version=4)
    assert asking.collect(0).at == PolicyVersion(1, 3)
    assert asking.actions.predictions == 2


def test_a_predictor_that_dies_is_replaced_by_the_next_one_at_once(asking) -> None:
    asking.request(0, 2)
    asking.request(1, 1)
    dead = asking.asked_twice()
    asking.start_predictor()
    again = asking.asked_twice()
    assert [request.request for request in again] == [request.request for request in dead]
    asking.answer(again[0].request, 2)
    asking.answer(again[1].request, 1)
    assert len(asking.collect(0).actions) == 2
    assert len(asking.collect(1).actions) == 1


def _add_predictor(asking) -> object:
    """A second predictor beside the first."""
    context = asking.roles("predictor-1")
    server, endpoint = context.serve("predictions", array_bytes=1 << 20)
    peer = Peer("predictor", "predictor-1", context.incarnation, {"predictions": endpoint})
    asking.known.learn(*asking.known.peers, peer)
    return server


def test_a_predictor_that_is_silent_for_six_seconds_is_passed_over(asking) -> None:
    other = _add_predictor(asking)
    asking.request(0, 2)
    first = asking.asked()
    asking.clock.now += 3.1
    assert asking.asked().request == first.request  # it may be slow: asked again
    asking.clock.now += 3.0
    _, envelope = asking.tools.next_message(other, asking.actions.poll)
    assert envelope.message.request == first.request
    reply = ActReply(first.request, 1, 9, np.zeros(2, np.int32), np.zeros(2, np.float32))
    assert other.send(asking.actor.routing_id, reply)
    assert asking.link.client.transport.wait(asking.tools.deadline_s)
    assert asking.collect(0).at == PolicyVersion(1, 9)
    asking.request(0, 2)
    assert asking.tools.next_message(other, asking.actions.poll)  # it keeps this predictor
    assert asking.quiet()


def test_a_predictor_that_answers_any_request_is_not_silent(asking) -> None:
    other = _add_predictor(asking)
    asking.request(0, 2)
    asking.request(1, 2)
    first, second = asking.asked_twice()
    asking.clock.now += 2.0
    asking.answer(second.request, 2)
    asking.clock.now += 4.1  # 6.1 s after the request, 4.1 s after the answer
    assert asking.asked().request == first.request
    assert asking.tools.nothing_comes(other, asking.actions.poll)


def test_an_answer_that_came_while_the_environments_stepped_is_no_silence(asking) -> None:
    other = _add_predictor(asking)
    asking.request(0, 2)
    request = asking.asked()
    zeros = np.zeros(2, np.float32)
    reply = ActReply(request.request, 0, 1, zeros.astype(np.int32), zeros)
    assert asking.predictor.send(asking.actor.routing_id, reply)
    assert asking.link.client.transport.wait(asking.tools.deadline_s)
    asking.clock.now += 60.0
    assert asking.collect(0).at == PolicyVersion(0, 1)
    assert asking.tools.nothing_comes(other, asking.actions.poll)


@pytest.mark.parametrize(
    "wrong",
    [
        {"actions": np.zeros(1, np.int32), "log_prob": np.zeros(1, np.float32)},
        {"actions": np.zeros(3, np.int32), "log_prob": np.zeros(3, np.float32)},
        {"actions": np.array([0, -1], np.int32)},
        {"actions": np.array([0, 3], np.int32)},
        {"actions": np.array([0, 1], np.int32)},  # masked
        {"behaviour_parameters": None},
        {"behaviour_parameters": np.zeros((2, 3), np.float32)},
        {"behaviour_parameters": np.zeros((1, 4), np.float32)},
        {"behaviour_parameters": np.full((2, 4), np.nan, np.float32)},
    ],
)
def test_a_reply_that_does_not_fit_is_no_reply(asking, caplog, wrong) -> None:
    asking.actions._parameters = 4
    masks = np.array([[True, True, True], [True, False, True]])
    seen = {OBSERVATION: np.zeros((2, 3), np.float32)}
    asking.actions.request(0, ActInput(seen, masks=masks))
    number, zeros = asking.asked().request, np.zeros(2, np.float32)
    given = np.arange(8, dtype=np.float32).reshape(2, 4)
    good = ActReply(number, 0, 1, np.array([1, 0], np.int32), zeros, behaviour_parameters=given)
    for _ in range(2):
        asking.say(replace(good, **wrong))
    assert asking.collect(0) is None
    assert caplog.text.count("event=reply_refused by=predictor") == 1
    asking.say(good)
    taken = asking.collect(0)
    assert taken.actions.tolist() == [1, 0]
    np.testing.assert_array_equal(taken.parameters, given)


def test_why_a_request_is_refused_is_said_once_and_a_full_queue_is_no_news(asking, caplog) -> None:
    bad = ErrorReply("bad_request", "observations: expected float32 [B, 4], got float32 [2, 3]")
    asking.request(0, 2)
    request = asking.asked()
    with caplog.at_level(logging.WARNING):
        asking.say(ErrorReply("queue_full", "the prediction queue is full, 256 requests wait"))
        asking.clock.now += 0.4
        assert asking.quiet()
        asking.clock.now += 0.2
        assert asking.asked().request == request.request
        for _ in range(3):
            asking.say(bad)
    [record] = caplog.records
    assert record.message == (
        f"event=message_refused by=predictor reason=bad_request detail={bad.detail!r}"
    )
    # it keeps asking: the next predictor may answer
    asking.clock.now += 3.1
    assert asking.asked().request == request.request


def test_a_state_travels_with_each_repetition_of_a_request_and_its_next_one_comes_back(
    roles, tools
) -> None:
    asking = Asking(roles, tools, state=((3,),))
    before = (np.full((2, 3), 7, np.float32),)
    seen = {OBSERVATION: np.zeros((2, 3), np.float32)}
    asking.actions.request(0, ActInput(seen, before))
    first = asking.asked()
    asking.clock.now += 3.1  # the answer is lost
    second = asking.asked()
    for request in (first, second):
        assert request.request == first.request
        np.testing.assert_array_equal(request.state[0], before[0])
    reply = ActReply(first.request, 1, 5, np.zeros(2, np.int32), np.zeros(2, np.float32))
    for wrong in ((), (np.zeros((2, 4), np.float32),), (np.full((2, 3), np.inf, np.float32),)):
        asking.say(replace(reply, next_state=wrong))
        assert asking.collect(0) is None
    for value in (8, 9):  # the answers of both
        asking.say(replace(reply, next_state=(np.full((2, 3), value, np.float32),)))
    choice = asking.collect(0)
    assert choice.next_state[0].tolist() == [[8] * 3] * 2 and choice.state is before
    assert asking.collect(0) is None  # one step is taken once


def test_a_compressed_policy_may_give_a_state_of_its_own_in_place(roles, tools) -> None:
    asking = Asking(roles, tools, state=((3,),))
    asking.request(0, size=2)
    actions, log_prob = np.zeros(2, np.int32), np.zeros(2, np.float32)
    reply = ActReply(asking.asked().request, 1, 5, actions, log_prob, chain="prune>onnx")
    asking.say(replace(reply, next_own_state=(np.zeros((1, 2), np.float32),)))
    assert asking.collect(0) is None
    asking.say(replace(reply, next_own_state=(np.ones((2, 2), np.float32),)))
    choice = asking.collect(0)
    assert (choice.next_state, choice.next_own_state[0].tolist()) == ((), [[1, 1], [1, 1]])
