"""The predictor's server: requests, refusals, deadlines, gauges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aclearn.config import Config
from aclearn.types import (
    OBSERVATION,
)
from aclearn.wire import ActCancel, ActReply, ActRequest, ErrorReply
from services.predictor.server import make_queue
from tests.support.predicting import act_request, pending_of


def test_one_bad_request_is_refused_alone(serving) -> None:
    serving.start()
    actors = [serving.actor(number) for number in range(3)]
    bad = ActRequest(7, {OBSERVATION: np.full((2, 3), np.nan, np.float32)})
    for actor, request in zip(actors, [act_request(2, 5), bad, act_request(1, 6)], strict=True):
        assert actor.send(request)
    first, refusal, last = (serving.reply_to(actor) for actor in actors)
    assert isinstance(refusal, ErrorReply)
    assert refusal.reason == "bad_request"
    for reply, (number, size) in [(first, (5, 2)), (last, (6, 1))]:
        assert isinstance(reply, ActReply)
        assert (reply.request, len(reply.actions)) == (number, size)
        assert (reply.generation, reply.version) == (3, 40)
    heartbeat = serving.predictor.heartbeat({})
    assert heartbeat.counters["predictions"] == 3
    assert heartbeat.counters["refused.bad_request"] == 1 == heartbeat.gauges["refused_messages"]
    # the refusal does not affect its sender
    assert actors[1].send(act_request(1, 8))
    assert serving.reply_to(actors[1]).request == 8


def test_a_request_that_is_taken_back_is_not_computed(serving) -> None:
    serving.start(workers=0)  # so that all wait
    actor, other = serving.actor(0), serving.actor(1)
    for message in (act_request(2, 1), act_request(2, 2), ActCancel(2), act_request(1, 3)):
        assert actor.send(message)
    assert other.send(act_request(3, 1))  # another actor's request 1 is another one
    serving.until(lambda: len(serving.queue) == 3, "two of the first, one of the other wait")
    assert actor.send(ActCancel(1))
    assert actor.send(ActCancel(77))  # e.g. answered long ago
    serving.until(lambda: serving.counter("requests_cancelled") == 3, "all are taken in")
    serving.predictor.resize(1)
    assert [serving.reply_to(client).request for client in (actor, other)] == [3, 1]
    assert serving.counter("predictions") == 1 + 3


def test_requests_beyond_the_batch_are_answered_in_the_next_batch(serving) -> None:
    serving.start(max_batch=3)
    actor = serving.actor(0)
    for number in range(4):
        assert actor.send(act_request(2, number))
    replies = [serving.reply_to(actor) for _ in range(4)]
    assert [reply.request for reply in replies] == [0, 1, 2, 3]
    heartbeat = serving.predictor.heartbeat({})
    assert (heartbeat.counters["predictions"], heartbeat.counters["prediction_batches"]) == (8, 4)
    assert heartbeat.gauges["batch_mean"] == 2.0
    assert 0 < heartbeat.waits["requests"] <= heartbeat.waits["total"]


def test_an_actor_that_left_does_not_stop_the_others(serving) -> None:
    serving.start()
    gone, staying = serving.actor(0), serving.actor(1)
    assert gone.send(act_request(1, 1))
    assert serving.server.transport.wait(serving.tools.deadline_s)
    gone.close()
    assert staying.send(act_request(1, 2))
    assert serving.reply_to(staying).request == 2


def test_a_full_queue_refuses_the_request_and_counts_it(serving) -> None:
    serving.start(max_requests=2, workers=0)
    actor = serving.actor(0)
    for number in range(3):
        assert actor.send(act_request(1, number))
    refusal = serving.reply_to(actor)
    assert isinstance(refusal, ErrorReply)
    assert refusal.reason == "queue_full"
    assert "queue is full, 2 requests wait" in refusal.detail
    heartbeat = serving.predictor.heartbeat({})
    assert heartbeat.counters["queue_full"] == 1
    assert heartbeat.gauges["queue_fill"] == 1.0
    serving.predictor.resize(1)
    assert [serving.reply_to(actor).request for _ in range(2)] == [0, 1]
    assert serving.predictor.heartbeat({}).gauges["queue_fill"] == 0.0


def test_what_its_actor_has_not_asked_again_is_not_computed(tools, serving) -> None:
    clock = tools.Clock()
    serving.start(workers=0, clock=clock)
    actor = serving.actor(0)
    assert actor.send(act_request(1, 1))
    serving.until(lambda: len(serving.queue) == 1, "the request waits")
    clock.now += 4.1
    assert actor.send(act_request(1, 2))
    serving.until(lambda: len(serving.queue) == 2, "the later one waits too")
    serving.predictor.resize(1)
    assert serving.reply_to(actor).request == 2
    assert serving.counter("requests_expired") == 1


def test_each_request_has_the_deadline_that_it_came_with(tools, serving) -> None:
    clock = tools.Clock()
    serving.start(workers=0, clock=clock)
    actor = serving.actor(0)
    for number, within_s in [(1, 0.5), (2, 60.0)]:
        assert actor.send(replace(act_request(1, number), within_s=within_s))
    serving.until(lambda: len(serving.queue) == 2, "both wait")
    clock.now += 1.6  # half a second, and one in which it could be asked again
    [waiting] = serving.queue.take(timeout_s=0)
    assert waiting.request.request == 2
    assert waiting.deadline == pytest.approx(clock.now - 1.6 + 61.0)


def test_the_gauges_tell_how_long_requests_waited_for_their_replies(tools, serving) -> None:
    clock = tools.Clock()
    serving.start(workers=0, clock=clock)
    actor = serving.actor(0)
    for number, later_s in enumerate([0.75, 0.25]):
        assert actor.send(act_request(1, number))
        serving.until(lambda number=number: len(serving.queue) == number + 1, "it waits")
        clock.now += later_s
    assert serving.predictor.heartbeat({}).gauges["wait_ms_p50"] == 0.0
    serving.predictor.resize(1)
    for _ in range(2):
        serving.reply_to(actor)
    gauges = serving.predictor.heartbeat({}).gauges
    assert gauges["wait_ms_p50"] == pytest.approx(625.0)  # between 250 and 1000 ms
    assert gauges["wait_ms_p99"] == pytest.approx(250.0 + 0.99 * 750.0)


@pytest.mark.parametrize(
    ("groups", "bound"),
    [
        ({}, 256),  # the least
        ({"actors": {"processes": 100, "groups": 2}}, 2 * 200),
        (
            {
                "actors": {"processes": 50, "groups": 2},
                "policies": {name: {"agents": [f"{name}-*"]} for name in "xyz"},
            },
            2 * 50 * 2 * 3,
        ),
        ({"tuner": {"enabled": True, "counts": ["actors"], "max_actors": 150}}, 2 * 150),
        ({"tuner": {"enabled": True, "max_actors": 150}}, 256),
        ({"tuner": {"counts": ["actors"], "max_actors": 150}}, 256),
    ],
)
def test_the_queue_has_room_for_as_many_actors_as_there_may_be(groups, bound) -> None:
    config = Config.model_validate({"env": {"id": "a"}, **groups})
    queue = make_queue(config, clock=lambda: 0.0)
    [refused] = queue.offer(pending_of([1] * (bound + 1)))
    assert refused.routing_id == b"actor-%d" % bound
