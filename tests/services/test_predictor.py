"""The predictor: checks, batches, answers, and one bad request among good ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aclearn.acting import log_probs_of
from aclearn.errors import WireError
from aclearn.monitoring import WaitMeter
from aclearn.policies import PolicyVersion
from aclearn.wire import ActReply, ActRequest, ErrorReply
from compress import OnnxPolicy
from services.predictor import Pending, Predictor, answer_batch, check_request, cut_batches


class _Weights:
    """A policy client that holds one version."""

    at = PolicyVersion(3, 40)
    chain = "none"


def _request(size: int, number: int = 1, seed: int = 0) -> ActRequest:
    rng = np.random.default_rng(seed)
    return ActRequest(number, rng.normal(size=(size, 3)).astype(np.float32))


def _pending(sizes: list[int]) -> list[Pending]:
    return [
        Pending(b"actor-%d" % i, _request(size, number=100 + i, seed=i))
        for i, size in enumerate(sizes)
    ]


def _runtime(tools) -> OnnxPolicy:
    rng = np.random.default_rng(7)
    runtime = OnnxPolicy(tools.flat)
    shapes = tools.flat.tensor_shapes().items()
    runtime.swap({name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes})
    return runtime


def test_requests_that_fit_the_policy_pass(tools) -> None:
    assert check_request(_request(5), tools.flat) is None
    pixels = np.zeros((2, 2, 8, 8), np.uint8)
    assert check_request(ActRequest(1, pixels), tools.images) is None


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
def test_requests_that_do_not_fit_are_refused(tools, observations, message) -> None:
    with pytest.raises(WireError, match=message) as error:
        check_request(ActRequest(1, observations), tools.flat)
    assert error.value.reason == "bad_request"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 12))
def test_batches_keep_the_order_and_the_bound_and_are_as_few_as_can_be(sizes, most) -> None:
    pending = _pending(sizes)
    batches = cut_batches(pending, most)
    assert [item for batch in batches for item in batch] == pending
    counts = [[len(item.request.observations) for item in batch] for batch in batches]
    for count in counts:
        # a request that is larger than the bound travels alone
        assert sum(count) <= most or len(count) == 1
    for this, following in pairwise(counts):
        assert sum(this) + following[0] > most


def test_no_requests_make_no_batches() -> None:
    assert cut_batches([], 10) == []


@pytest.mark.parametrize("sizes", [[3], [1, 4, 2]])
def test_a_batch_gets_the_answers_that_each_request_would_get_alone(tools, sizes) -> None:
    runtime, at = _runtime(tools), PolicyVersion(2, 17)
    pending = _pending(sizes)
    replies = answer_batch(pending, runtime, at, np.random.default_rng(5))
    assert [identity for identity, _ in replies] == [item.identity for item in pending]
    for item, (_, reply) in zip(pending, replies, strict=True):
        logits = runtime.logits(item.request.observations)  # alone
        assert reply.request == item.request.request
        assert (reply.epoch, reply.version) == (2, 17)
        assert reply.actions.shape == reply.log_probs.shape == (len(logits),)
        np.testing.assert_allclose(
            reply.log_probs, log_probs_of(logits, reply.actions), rtol=1e-5, atol=1e-6
        )


class Serving:
    """A predictor on a real socket and the actors that ask it."""

    def __init__(self, roles, tools, *, max_batch: int = 8) -> None:
        self.tools, self.roles = tools, roles
        context = roles("predictor-0")
        self.server, self.endpoint = context.serve((ActRequest,))
        self.runtime = _runtime(tools)
        self.predictor = Predictor(
            self.server,
            self.runtime,
            _Weights(),
            tools.flat,
            max_batch=max_batch,
            rng=np.random.default_rng(1),
            meter=WaitMeter(),
        )

    def actor(self, number: int):
        client = self.roles(f"actor-{number}").connect(self.endpoint)
        self.tools.wait_until(lambda: client.socket.poll(100, 2), "the actor is connected")
        return client

    def reply_to(self, client):
        answers = []

        def serve_and_look() -> bool:
            self.predictor.serve()
            answers.append(client.receive(0.0))
            return answers[-1] is not None

        self.tools.wait_until(serve_and_look, "the predictor answers")
        return answers[-1].message


def test_one_bad_request_is_refused_alone(roles, tools) -> None:
    serving = Serving(roles, tools)
    actors = [serving.actor(number) for number in range(3)]
    bad = ActRequest(7, np.full((2, 3), np.nan, np.float32))
    for actor, request in zip(actors, [_request(2, 5), bad, _request(1, 6)], strict=True):
        assert actor.send(request)
    first, refusal, last = (serving.reply_to(actor) for actor in actors)
    assert isinstance(refusal, ErrorReply)
    assert refusal.reason == "bad_request"
    for reply, (number, size) in [(first, (5, 2)), (last, (6, 1))]:
        assert isinstance(reply, ActReply)
        assert (reply.request, len(reply.actions)) == (number, size)
        assert (reply.epoch, reply.version) == (3, 40)
    beat = serving.predictor.beat(False)
    assert beat.counters["predictions"] == 3
    assert beat.counters["refused"] == beat.counters["refused.bad_request"] == 1
    # the refused one is not held against its sender
    assert actors[1].send(_request(1, 8))
    assert serving.reply_to(actors[1]).request == 8


def test_requests_beyond_the_batch_are_answered_in_the_next_batch(roles, tools) -> None:
    serving = Serving(roles, tools, max_batch=3)
    actor = serving.actor(0)
    for number in range(4):
        assert actor.send(_request(2, number))
    replies = [serving.reply_to(actor) for _ in range(4)]
    assert [reply.request for reply in replies] == [0, 1, 2, 3]
    beat = serving.predictor.beat(True)
    assert (beat.counters["predictions"], beat.counters["prediction_batches"]) == (8, 4)
    assert beat.gauges["batch_mean"] == 2.0
    assert (beat.final, beat.state) == (True, "stopping")
    assert beat.waits["requests"] > 0


def test_an_actor_that_left_does_not_stop_the_others(roles, tools) -> None:
    serving = Serving(roles, tools)
    gone, staying = serving.actor(0), serving.actor(1)
    assert gone.send(_request(1, 1))
    assert serving.server.socket.poll(5000)
    gone.close()
    assert staying.send(_request(1, 2))
    assert serving.reply_to(staying).request == 2
