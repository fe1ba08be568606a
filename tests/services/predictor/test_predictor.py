"""The predictor: checks, batches, answers, workers that change and fail, one bad request."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from aclearn.config import Config
from aclearn.distributions import distribution_of
from aclearn.errors import WireError
from aclearn.rollout import PolicySnapshot
from aclearn.telemetry import WaitMeter
from aclearn.types import (
    OBSERVATION,
    ActionSpec,
    LeafSpec,
    ObservationSpec,
    PolicyOutput,
    PolicyVersion,
)
from aclearn.wire import REPLY_WITHIN_S, ActCancel, ActReply, ActRequest, ErrorReply
from compress import OnnxRuntime
from services.predictor.core import answer_batch, make_step
from services.predictor.outbox import Outbox
from services.predictor.prediction_queue import Pending, PredictionQueue
from services.predictor.server import PredictorServer, check_request, make_queue
from tests.support.acting import Acting, parameters_of

_CHOICE = distribution_of(ActionSpec.discrete(2))
_FLAT = ObservationSpec.plain((3,), "float32")


def _request(size: int, number: int = 1, seed: int = 0) -> ActRequest:
    rng = np.random.default_rng(seed)
    return ActRequest(number, {OBSERVATION: rng.normal(size=(size, 3)).astype(np.float32)})


def _pending(sizes: list[int]) -> list[Pending]:
    return [
        Pending(b"actor-%d" % i, _request(size, number=100 + i, seed=i), 0.0, 1.0)
        for i, size in enumerate(sizes)
    ]


def _acting(tools, at: PolicyVersion) -> PolicySnapshot:
    rng = np.random.default_rng(7)
    runtime = Acting(OnnxRuntime(tools.flat))
    shapes = tools.flat.tensor_shapes().items()
    runtime.load({name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes})
    return PolicySnapshot(runtime.executable, at, "some-chain")


def test_requests_that_fit_the_policy_pass() -> None:
    assert check_request(_request(5), _FLAT) is None
    both = ObservationSpec({**_FLAT, "screen": LeafSpec((2, 8, 8), "uint8", 2)})
    pixels = np.zeros((5, 2, 8, 8), np.uint8)
    request = ActRequest(1, {**_request(5).observations, "screen": pixels})
    assert check_request(request, both) is None
    turned = dict(reversed(request.observations.items()))
    for observations in ({}, {"screen": pixels}, turned, {**turned, "smell": pixels}):
        with pytest.raises(WireError, match="expected the leaves observation, screen, in this"):
            check_request(ActRequest(1, observations), both)
    fewer = ActRequest(1, {**request.observations, "screen": pixels[:4]})
    with pytest.raises(WireError, match=r"observations\.screen: expected uint8 \[B, 2, 8, 8\]"):
        check_request(fewer, both)


def test_a_state_for_a_policy_without_memory_is_refused() -> None:
    request = replace(_request(2), state=(np.zeros((2, 4), np.float32),))
    with pytest.raises(WireError, match="state: expected none"):
        check_request(request, _FLAT)


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        (np.zeros((2, 4), np.float32), r"expected float32 \[B, 3\], got float32 \[2, 4\]"),
        (np.zeros((2, 3), np.uint8), r"expected float32 \[B, 3\], got uint8 \[2, 3\]"),
        (np.zeros((2, 3, 1), np.float32), r"got float32 \[2, 3, 1\]"),
        (np.zeros((0, 3), np.float32), "expected at least one"),
        (np.array([[0, np.nan, 0]], np.float32), "not finite"),
        (np.array([[np.inf, 0, 0]], np.float32), "not finite"),
        (np.array([[np.inf, -np.inf, 0]], np.float32), "not finite"),
    ],
)
def test_requests_that_do_not_fit_are_refused(observations, message) -> None:
    with pytest.raises(WireError, match=message) as error:
        check_request(ActRequest(1, {OBSERVATION: observations}), _FLAT)
    assert error.value.reason == "bad_request"


@pytest.mark.parametrize("within_s", [0.0, -1.0, 60.5, 1e300])
def test_a_request_without_time_for_an_answer_or_with_no_end_is_refused(tools, within_s) -> None:
    with pytest.raises(WireError, match="within_s: expected more than 0 and at most 60 seconds"):
        check_request(replace(_request(2), within_s=within_s), tools.flat)


@pytest.mark.parametrize("sizes", [[3], [1, 4, 2]])
def test_a_batch_gets_the_answers_that_each_request_would_get_alone(tools, sizes) -> None:
    acting = _acting(tools, PolicyVersion(2, 17))
    pending = _pending(sizes)
    answered = answer_batch(pending, acting, _CHOICE, np.random.default_rng(5), parameters=True)
    assert [item for item, _ in answered] == pending
    for item, reply in answered:
        logits = parameters_of(acting.executable, item.request.observations[OBSERVATION])  # alone
        np.testing.assert_allclose(reply.behaviour_parameters, logits, rtol=1e-5, atol=1e-6)
        assert reply.request == item.request.request
        assert (reply.generation, reply.version, reply.chain) == (2, 17, "some-chain")
        assert reply.actions.shape == reply.log_prob.shape == (len(logits),)
        np.testing.assert_allclose(
            reply.log_prob, _CHOICE.log_prob(logits, reply.actions), rtol=1e-5, atol=1e-6
        )


def test_a_policy_with_a_memory_gets_each_requests_state_and_gives_the_next_one_back() -> None:
    def step(observations, state):
        # it sums its observations
        (memory,) = state or (np.zeros((len(observations[OBSERVATION]), 1), np.float32),)
        memory = memory + observations[OBSERVATION].sum(1, keepdims=True)
        return PolicyOutput(np.zeros((len(memory), 2), np.float32), state=(memory,))

    acting = PolicySnapshot(SimpleNamespace(step=step), PolicyVersion(0, 1))
    expected, stated = {}, []
    # the one without a state has just begun
    for item, first in zip(_pending([2, 1, 3]), [(10, 20), None, (-1, -2, -3)], strict=True):
        state = () if first is None else (np.float32(first)[:, None],)
        stated.append(replace(item, request=replace(item.request, state=state)))
        seen = item.request.observations[OBSERVATION].sum(1)
        expected[item.request.request] = seen + (np.zeros(1) if first is None else first)
    for item, reply in answer_batch(stated, acting, _CHOICE, np.random.default_rng(5)):
        (memory,) = reply.next_state
        np.testing.assert_allclose(memory[:, 0], expected[item.request.request], rtol=1e-5)


def test_a_worker_s_step_tells_whether_there_was_a_batch(tools) -> None:
    acting = _acting(tools, PolicyVersion(2, 17))
    queue, outbox = PredictionQueue(max_requests=8, max_batch=8, clock=tools.Clock(0.5)), Outbox()
    try:
        step = make_step(queue, outbox, lambda: acting, _CHOICE, np.random.default_rng(5))
        pending = _pending([1, 2])
        assert queue.offer_all(pending) == []
        assert step(WaitMeter()) is True
        queue.close()
        assert step(WaitMeter()) is False
        [answered] = outbox.take()
        assert [item for item, _ in answered] == pending
    finally:
        outbox.close()


class Serving:
    """A predictor on a real socket, and its actors."""

    def __init__(self, roles, tools) -> None:
        self.tools, self.roles = tools, roles
        self.server, self.endpoint = roles("predictor-0").serve((ActRequest, ActCancel))
        self.acting: PolicySnapshot | None = _acting(tools, PolicyVersion(3, 40))
        self.predictor: PredictorServer | None = None

    def start(
        self,
        *,
        max_batch: int = 8,
        max_requests: int = 100,
        workers: int = 1,
        clock=time.monotonic,
        inline: bool = False,
    ) -> Serving:
        self.queue = PredictionQueue(max_requests=max_requests, max_batch=max_batch, clock=clock)
        self.predictor = PredictorServer(
            self.server,
            self.queue,
            lambda: self.acting,
            self.tools.flat,
            seed=(1,),
            clock=clock,
            inline=inline,
        )
        if workers:
            self.predictor.want(workers)
        return self

    def actor(self, number: int):
        client = self.roles(f"actor-{number}").connect(self.endpoint)
        self.tools.wait_until(lambda: client.transport.wait_for_room(0.1), "the actor is connected")
        return client

    def until(self, condition, what: str) -> None:
        def serve_and_look() -> bool:
            self.predictor.step(0.02)
            return condition()

        self.tools.wait_until(serve_and_look, what)

    def reply_to(self, client):
        answers = []

        def there() -> bool:
            answers.append(client.receive(0.0))
            return answers[-1] is not None

        self.until(there, "the predictor answers")
        return answers[-1].message

    def counter(self, name: str) -> int:
        return self.predictor.heartbeat({}).counters[name]

    def workers(self) -> float:
        return self.predictor.heartbeat({}).gauges["workers"]


@pytest.fixture
def serving(roles, tools) -> Iterator[Serving]:
    serving = Serving(roles, tools)
    yield serving
    if serving.predictor is not None:
        serving.predictor.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("predictor-")]


def test_one_bad_request_is_refused_alone(serving) -> None:
    serving.start()
    actors = [serving.actor(number) for number in range(3)]
    bad = ActRequest(7, {OBSERVATION: np.full((2, 3), np.nan, np.float32)})
    for actor, request in zip(actors, [_request(2, 5), bad, _request(1, 6)], strict=True):
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
    assert actors[1].send(_request(1, 8))
    assert serving.reply_to(actors[1]).request == 8


def test_without_threads_one_step_takes_a_request_in_answers_it_and_sends_the_reply(
    serving,
) -> None:
    serving.start(inline=True, workers=2)
    actor = serving.actor(0)
    assert actor.send(_request(2, 5))
    assert serving.server.transport.wait(serving.tools.deadline_s)
    serving.predictor.step(0.0)
    assert serving.counter("predictions") == 2
    reply = actor.receive(serving.tools.deadline_s).message
    assert (reply.request, len(reply.actions)) == (5, 2)
    assert not [t for t in threading.enumerate() if t.name.startswith("predictor-")]


def test_a_request_that_is_taken_back_is_not_computed(serving) -> None:
    serving.start(workers=0)  # so that all wait
    actor, other = serving.actor(0), serving.actor(1)
    for message in (_request(2, 1), _request(2, 2), ActCancel(2), _request(1, 3)):
        assert actor.send(message)
    assert other.send(_request(3, 1))  # another actor's request 1 is another one
    serving.until(lambda: len(serving.queue) == 3, "two of the first, one of the other wait")
    assert actor.send(ActCancel(1))
    assert actor.send(ActCancel(77))  # e.g. answered long ago
    serving.until(lambda: serving.counter("requests_cancelled") == 3, "all are taken in")
    serving.predictor.want(1)
    assert [serving.reply_to(client).request for client in (actor, other)] == [3, 1]
    assert serving.counter("predictions") == 1 + 3


def test_a_request_of_another_shape_fails_alone_in_the_batch_that_it_came_with(serving) -> None:
    serving.start(workers=0)  # so that all are in one batch
    actor = serving.actor(0)
    bad = ActRequest(2, {OBSERVATION: np.zeros((2, 4), np.float32)})
    for request in (_request(2, 1), bad, _request(3, 3)):
        assert actor.send(request)
    refusal = serving.reply_to(actor)
    assert isinstance(refusal, ErrorReply)
    assert "got float32 [2, 4]" in refusal.detail
    serving.until(lambda: len(serving.queue) == 2, "the good ones wait")
    serving.predictor.want(1)
    assert [serving.reply_to(actor).request for _ in range(2)] == [1, 3]
    assert serving.counter("prediction_batches") == 1


def test_requests_beyond_the_batch_are_answered_in_the_next_batch(serving) -> None:
    serving.start(max_batch=3)
    actor = serving.actor(0)
    for number in range(4):
        assert actor.send(_request(2, number))
    replies = [serving.reply_to(actor) for _ in range(4)]
    assert [reply.request for reply in replies] == [0, 1, 2, 3]
    heartbeat = serving.predictor.heartbeat({})
    assert (heartbeat.counters["predictions"], heartbeat.counters["prediction_batches"]) == (8, 4)
    assert heartbeat.gauges["batch_mean"] == 2.0
    assert 0 < heartbeat.waits["requests"] <= heartbeat.waits["total"]


def test_an_actor_that_left_does_not_stop_the_others(serving) -> None:
    serving.start()
    gone, staying = serving.actor(0), serving.actor(1)
    assert gone.send(_request(1, 1))
    assert serving.server.transport.wait(serving.tools.deadline_s)
    gone.close()
    assert staying.send(_request(1, 2))
    assert serving.reply_to(staying).request == 2


def test_a_full_queue_refuses_the_request_and_counts_it(serving) -> None:
    serving.start(max_requests=2, workers=0)
    actor = serving.actor(0)
    for number in range(3):
        assert actor.send(_request(1, number))
    refusal = serving.reply_to(actor)
    assert isinstance(refusal, ErrorReply)
    assert refusal.reason == "queue_full"
    assert "queue is full, 2 requests wait" in refusal.detail
    heartbeat = serving.predictor.heartbeat({})
    assert heartbeat.counters["queue_full"] == 1
    assert heartbeat.gauges["queue_fill"] == 1.0
    serving.predictor.want(1)
    assert [serving.reply_to(actor).request for _ in range(2)] == [0, 1]
    assert serving.predictor.heartbeat({}).gauges["queue_fill"] == 0.0


def test_what_its_actor_has_not_asked_again_is_not_computed(tools, serving) -> None:
    clock = tools.Clock()
    serving.start(workers=0, clock=clock)
    actor = serving.actor(0)
    assert actor.send(_request(1, 1))
    serving.until(lambda: len(serving.queue) == 1, "the request waits")
    clock.now += 4.1
    assert actor.send(_request(1, 2))
    serving.until(lambda: len(serving.queue) == 2, "the later one waits too")
    serving.predictor.want(1)
    assert serving.reply_to(actor).request == 2
    assert serving.counter("requests_expired") == 1


def test_each_request_has_the_deadline_that_it_came_with(tools, serving) -> None:
    clock = tools.Clock()
    serving.start(workers=0, clock=clock)
    actor = serving.actor(0)
    for number, within_s in [(1, 0.5), (2, 60.0)]:
        assert actor.send(replace(_request(1, number), within_s=within_s))
    serving.until(lambda: len(serving.queue) == 2, "both wait")
    clock.now += 1.6  # half a second, and one in which it could be asked again
    [waiting] = serving.queue.take(timeout_s=0)
    assert waiting.request.request == 2
    assert waiting.deadline == pytest.approx(clock.now - 1.6 + 61.0)


def test_a_request_that_is_asked_again_in_time_keeps_its_place(tools, serving) -> None:
    clock = tools.Clock()
    serving.start(workers=0, clock=clock)
    actor, other = serving.actor(0), serving.actor(1)
    assert actor.send(_request(1, 1))
    serving.until(lambda: len(serving.queue) == 1, "the request waits")
    assert other.send(_request(1, 2))
    serving.until(lambda: len(serving.queue) == 2, "another one behind it")
    clock.now += REPLY_WITHIN_S + 0.1
    assert actor.send(_request(1, 1)) and actor.send(ActCancel(77))
    serving.until(lambda: serving.counter("requests_cancelled") == 1, "it is asked again")
    clock.now += 0.8
    [first, second] = serving.queue.take(timeout_s=0)
    assert (first.request.request, second.request.request) == (1, 2)
    assert first.deadline > second.deadline
    assert serving.counter("requests_expired") == 0


def test_a_request_asked_twice_while_it_waits_is_computed_once(serving) -> None:
    serving.start(workers=0)
    actor = serving.actor(0)
    for number in (5, 5, 6):
        assert actor.send(_request(2, number))
    serving.until(lambda: len(serving.queue) == 2, "both have come, 6 after the second 5")
    serving.predictor.want(1)
    assert [serving.reply_to(actor).request for _ in range(2)] == [5, 6]
    assert serving.counter("predictions") == 4


def test_the_gauges_tell_how_long_requests_waited_for_their_replies(tools, serving) -> None:
    clock = tools.Clock()
    serving.start(workers=0, clock=clock)
    actor = serving.actor(0)
    for number, later_s in enumerate([0.75, 0.25]):
        assert actor.send(_request(1, number))
        serving.until(lambda number=number: len(serving.queue) == number + 1, "it waits")
        clock.now += later_s
    assert serving.predictor.heartbeat({}).gauges["wait_ms_p50"] == 0.0
    serving.predictor.want(1)
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
        ({"tuner": {"enabled": True, "counts": ["actors"], "max_actors": 150}}, 2 * 150),
        ({"tuner": {"enabled": True, "max_actors": 150}}, 256),
        ({"tuner": {"counts": ["actors"], "max_actors": 150}}, 256),
    ],
)
def test_the_queue_has_room_for_as_many_actors_as_there_may_be(groups, bound) -> None:
    config = Config.model_validate({"env": {"id": "a"}, **groups})
    queue = make_queue(config, clock=lambda: 0.0)
    [refused] = queue.offer_all(_pending([1] * (bound + 1)))
    assert refused.routing_id == b"actor-%d" % bound


def test_the_number_of_workers_follows_the_wish(serving) -> None:
    serving.start(workers=2)

    def living() -> int:
        return sum(t.name.startswith("predictor-") for t in threading.enumerate())

    assert living() == 2
    serving.predictor.want(None)
    for count in (4, 1, 3):
        serving.predictor.want(count)
        serving.tools.wait_until(lambda count=count: living() == count, f"{count} workers live")
        serving.tools.wait_until(lambda count=count: serving.workers() == count, "it says so")
    actor = serving.actor(0)
    assert actor.send(_request(2, 9))
    assert serving.reply_to(actor).request == 9
    assert serving.counter("workers_refused") == 0


@pytest.mark.parametrize("count", [0, -1, 65])
def test_a_count_that_cannot_be_is_refused_and_the_old_one_stays(serving, caplog, count) -> None:
    serving.start(workers=2)
    for _ in range(3):  # the predictor sees the same number repeatedly
        serving.predictor.want(count)
    assert serving.counter("workers_refused") == 1
    serving.tools.wait_until(lambda: serving.workers() == 2, "there are as many as before")
    assert f"event=workers_refused count={count} expected=1..64" in caplog.text
    serving.predictor.want(3)
    serving.tools.wait_until(lambda: serving.workers() == 3, "the next wish is followed")


def _fails_at(value: float, executable) -> SimpleNamespace:
    """An executable that raises when it sees an observation that begins with `value`."""

    def step(observations, state):
        if (observations[OBSERVATION][:, 0] == value).any():
            raise ZeroDivisionError("a kernel that does not work")
        return executable.step(observations, state)

    return SimpleNamespace(step=step)


def _poison(number: int) -> ActRequest:
    return ActRequest(number, {OBSERVATION: np.full((1, 3), 666.0, np.float32)})


def test_a_batch_that_fails_is_counted_and_the_worker_goes_on(serving, caplog) -> None:
    serving.acting = PolicySnapshot(
        _fails_at(666.0, serving.acting.executable), PolicyVersion(0, 1)
    )
    serving.start(max_batch=1)
    actor = serving.actor(0)
    for number in range(1, 6, 2):  # two in a row at most
        assert actor.send(_poison(number))
        assert actor.send(_poison(number + 100))
        assert actor.send(_request(1, number + 200))
        assert serving.reply_to(actor).request == number + 200
    assert serving.counter("worker_failures") == 6
    assert serving.counter("requests_dropped.worker_failed") == 6
    assert "a kernel that does not work" in caplog.text


def test_three_failures_in_a_row_stop_the_predictor_with_the_last_traceback(serving) -> None:
    serving.acting = PolicySnapshot(
        _fails_at(666.0, serving.acting.executable), PolicyVersion(0, 1)
    )
    serving.start(max_batch=1, workers=2)
    actor = serving.actor(0)
    for number in range(3):
        assert actor.send(_poison(number))
    with pytest.raises(RuntimeError, match="3 steps of predictor workers in a row") as error:
        serving.until(lambda: False, "the predictor gives up")
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_reply_names_the_policy_that_computed_it_though_another_came_meanwhile(serving) -> None:
    began, goes_on = threading.Event(), threading.Event()
    old = serving.acting.executable

    def step(observations, state):
        began.set()
        assert goes_on.wait(serving.tools.deadline_s)
        return old.step(observations, state)

    serving.acting = PolicySnapshot(SimpleNamespace(step=step), PolicyVersion(0, 1), "old")
    serving.start(workers=1)
    actor = serving.actor(0)
    assert actor.send(_request(1, 1))
    serving.until(began.is_set, "the batch is being computed")
    serving.acting = PolicySnapshot(old, PolicyVersion(0, 2), "new")
    assert actor.send(_request(1, 2))
    serving.until(lambda: len(serving.queue) == 1, "the next request waits")
    goes_on.set()
    first, second = serving.reply_to(actor), serving.reply_to(actor)
    assert (first.request, first.version, first.chain) == (1, 1, "old")
    assert (second.request, second.version, second.chain) == (2, 2, "new")


def test_several_workers_compute_at_the_same_time(serving) -> None:
    together = threading.Barrier(3)
    plain = serving.acting.executable

    def step(observations, state):
        together.wait(serving.tools.deadline_s)  # passes only when three are here
        return plain.step(observations, state)

    serving.acting = PolicySnapshot(SimpleNamespace(step=step), PolicyVersion(0, 1))
    serving.start(max_batch=1, workers=3)
    actor = serving.actor(0)
    for number in range(3):
        assert actor.send(_request(1, number))
    assert {serving.reply_to(actor).request for _ in range(3)} == {0, 1, 2}
    assert serving.counter("worker_failures") == 0


def test_a_batch_in_the_outbox_ends_the_wait_at_the_socket(serving) -> None:
    outbox = Outbox()
    outbox.put([])
    outbox.put([])
    # minutes, were it not woken
    assert serving.server.receive(300.0, wake=outbox.wake_fd) == []
    assert outbox.take() == [[], []]
    assert outbox.take() == []
    assert select.select([outbox.wake_fd], [], [], 0)[0] == []
    outbox.put([])
    assert serving.server.receive(300.0, wake=outbox.wake_fd) == []
    outbox.close()


def test_a_full_outbox_keeps_a_worker_until_there_is_room(tools) -> None:
    outbox, put = Outbox(most=2), []
    batches = [[(pending, None)] for pending in _pending([1, 1, 1, 1])]

    def put_all() -> None:
        for batch in batches:
            outbox.put(batch)
            put.append(batch)

    worker = threading.Thread(target=put_all, daemon=True)
    worker.start()
    tools.wait_until(lambda: len(put) == 2, "two are in")
    assert outbox.take() == batches[:2]
    tools.wait_until(lambda: len(put) == 4, "two more are in")
    assert outbox.take() == batches[2:]
    worker.join(tools.deadline_s)
    outbox.close()


def test_closing_the_outbox_ends_the_wait_for_room(tools) -> None:
    outbox = Outbox(most=1)
    outbox.put([])
    worker = threading.Thread(target=outbox.put, args=([],), daemon=True)
    worker.start()
    outbox.close()
    worker.join(tools.deadline_s)
    assert not worker.is_alive()
