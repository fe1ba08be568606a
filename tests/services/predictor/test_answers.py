"""Which requests a policy can answer, and the answers of a batch."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

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
from aclearn.types.action_spec import ActionPart
from aclearn.wire import ActRequest
from services.predictor.core import answer_batch, make_step
from services.predictor.outbox import Outbox
from services.predictor.prediction_queue import Pending, PredictionQueue
from services.predictor.server import check_epsilon, check_masks, check_request, check_state
from tests.support.acting import parameters_of
from tests.support.predicting import act_request, pending_of, snapshot_of

_CHOICE = distribution_of(ActionSpec.discrete(2))


_FLAT = ObservationSpec.plain((3,), "float32")


def test_requests_that_fit_the_policy_pass() -> None:
    assert check_request(act_request(5), _FLAT, 64) is None
    both = ObservationSpec({**_FLAT, "screen": LeafSpec((2, 8, 8), "uint8", 2)})
    pixels = np.zeros((5, 2, 8, 8), np.uint8)
    request = ActRequest(1, {**act_request(5).observations, "screen": pixels})
    assert check_request(request, both, 64) is None
    turned = dict(reversed(request.observations.items()))
    for observations in ({}, {"screen": pixels}, turned, {**turned, "smell": pixels}):
        with pytest.raises(WireError, match="expected the leaves observation, screen, in this"):
            check_request(ActRequest(1, observations), both, 64)
    fewer = ActRequest(1, {**request.observations, "screen": pixels[:4]})
    with pytest.raises(WireError, match=r"observations\.screen: expected uint8 \[B, 2, 8, 8\]"):
        check_request(fewer, both, 64)


def test_masks_must_leave_each_choice_something() -> None:
    action = ActionSpec.of((ActionPart((), (2,), counts=(3, 2), starts=(0, 0)),))
    masks = np.array([[1, 0, 0, 0, 1]] * 2, np.bool_)
    check_masks(act_request(2), action)
    check_masks(replace(act_request(2), masks=masks), action)
    closed = masks & (np.arange(5) != 4)
    for wrong in (masks[:1], masks[:, :4], closed):
        with pytest.raises(WireError, match=r"masks: expected \[2, 5\], with a possible action"):
            check_masks(replace(act_request(2), masks=wrong), action)


def test_requests_with_masks_and_without_are_answered_in_one_batch() -> None:
    logits = np.array([[30.0, 0.0]] * 3, np.float32)
    masked = ActRequest(1, {OBSERVATION: logits[:1]}, masks=np.array([[False, True]]))
    free = ActRequest(2, {OBSERVATION: logits[1:]})
    executable = SimpleNamespace(step=lambda seen, state: PolicyOutput(seen[OBSERVATION]))
    policy, rng = PolicySnapshot(executable, PolicyVersion(0, 0)), np.random.default_rng(0)
    for batch in ([masked, free], [free, masked]):
        pending = [Pending(b"actor", each, 0.0, 1.0) for each in batch]
        answered = answer_batch(pending, policy, _CHOICE, rng)
        replies = {reply.request: reply for _, reply in answered}
        assert replies[1].actions.tolist() == [1] and replies[1].log_prob.tolist() == [0.0]
        assert replies[2].actions.tolist() == [0, 0]


def test_requests_with_epsilon_explore_and_others_are_refused() -> None:
    seen, halves = {OBSERVATION: np.array([[0.0, 9.0]] * 4000, np.float32)}, np.full(4000, 0.5)
    asked = ActRequest(1, seen, epsilon=halves.astype(np.float32))
    executable = SimpleNamespace(step=lambda seen, state: PolicyOutput(seen[OBSERVATION]))
    policy, rng = PolicySnapshot(executable, PolicyVersion(0, 0)), np.random.default_rng(0)
    ((_, reply),) = answer_batch([Pending(b"actor", asked, 0.0, 1.0)], policy, _CHOICE, rng)
    assert np.mean(reply.actions == 0) == pytest.approx(0.25, abs=0.03)
    np.testing.assert_allclose(np.exp(reply.log_prob), np.where(reply.actions, 0.75, 0.25))
    check_epsilon(asked, True)
    check_epsilon(replace(asked, epsilon=None), False)
    for wrong in (None, asked.epsilon[1:], asked.epsilon + 0.6, asked.epsilon * np.nan):
        with pytest.raises(WireError, match=r"epsilon: expected \[4000\] between 0 and 1"):
            check_epsilon(replace(asked, epsilon=wrong), True)
    with pytest.raises(WireError, match="epsilon: expected none"):
        check_epsilon(asked, False)


def _zeros(*shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(np.zeros(shape, np.float32) for shape in shapes)


@pytest.mark.parametrize(
    ("sizes", "state", "own_state", "words"),
    [
        ((), _zeros((2, 4)), (), "expected none: the policy has no memory"),
        ((4,), _zeros((2, 3)), (), r"expected \[B, 4\], got"),
        ((4, 4), _zeros((2, 4)), (), r"expected \[B, 4\], \[B, 4\]"),
        ((4,), _zeros((3, 4)), (), r"expected 2 rows"),
        ((4,), (np.full((2, 4), np.nan, np.float32),), (), "numbers up to 1e\\+12"),
        ((4,), (np.full((2, 4), 2e12, np.float32),), (), "numbers up to 1e\\+12"),
        ((4,), (), _zeros((1, 9)), "expected 2 rows"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(sizes, state, own_state, words) -> None:
    request = replace(act_request(2), state=state, own_state=own_state)
    with pytest.raises(WireError, match=words) as error:
        check_state(request, sizes)
    assert error.value.reason == "bad_request"
    for good in ((), _zeros((2, 4))):
        check_state(replace(request, state=good, own_state=_zeros((2, 7))), (4,))


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        (np.zeros((2, 4), np.float32), r"expected float32 \[B, 3\], got float32 \[2, 4\]"),
        (np.zeros((2, 3), np.uint8), r"expected float32 \[B, 3\], got uint8 \[2, 3\]"),
        (np.zeros((2, 3, 1), np.float32), r"got float32 \[2, 3, 1\]"),
        (np.zeros((0, 3), np.float32), "expected 1 to 64 .actors.envs_per_group., got 0"),
        (np.zeros((65, 3), np.float32), "expected 1 to 64 .actors.envs_per_group., got 65"),
        (np.array([[0, np.nan, 0]], np.float32), "not finite"),
        (np.array([[np.inf, 0, 0]], np.float32), "not finite"),
        (np.array([[np.inf, -np.inf, 0]], np.float32), "not finite"),
    ],
)
def test_requests_that_do_not_fit_are_refused(observations, message) -> None:
    with pytest.raises(WireError, match=message) as error:
        check_request(ActRequest(1, {OBSERVATION: observations}), _FLAT, 64)
    assert error.value.reason == "bad_request"


@pytest.mark.parametrize("within_s", [0.0, -1.0, 60.5, 1e300])
def test_a_request_without_time_for_an_answer_or_with_no_end_is_refused(tools, within_s) -> None:
    with pytest.raises(WireError, match="within_s: expected more than 0 and at most 60 seconds"):
        check_request(replace(act_request(2), within_s=within_s), tools.flat, 64)


@pytest.mark.parametrize("sizes", [[3], [1, 4, 2]])
def test_a_batch_gets_the_answers_that_each_request_would_get_alone(tools, sizes) -> None:
    acting = snapshot_of(tools, PolicyVersion(2, 17))
    pending = pending_of(sizes)
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
    for item, first in zip(pending_of([2, 1, 3]), [(10, 20), None, (-1, -2, -3)], strict=True):
        state = () if first is None else (np.float32(first)[:, None],)
        stated.append(replace(item, request=replace(item.request, state=state)))
        seen = item.request.observations[OBSERVATION].sum(1)
        expected[item.request.request] = seen + (np.zeros(1) if first is None else first)
    for item, reply in answer_batch(stated, acting, _CHOICE, np.random.default_rng(5)):
        (memory,) = reply.next_state
        np.testing.assert_allclose(memory[:, 0], expected[item.request.request], rtol=1e-5)


def test_a_state_of_a_policy_of_its_own_begins_again_where_it_does_not_fit() -> None:
    def step(observations, state):
        assert [part.shape for part in state] == [(6, 2)]
        return PolicyOutput(np.zeros((6, 2), np.float32), state=(state[0] + 1,))

    pruned = PolicySnapshot(SimpleNamespace(step=step), PolicyVersion(0, 1), own_state=((2,),))
    asked = []
    for item, own in zip(pending_of([2, 1, 3]), [4, None, 2], strict=True):
        own_state = () if own is None else (np.full((item.size, own), 7, np.float32),)
        request = replace(item.request, state=_zeros((item.size, 9)), own_state=own_state)
        asked.append(replace(item, request=request))
    answered = answer_batch(asked, pruned, _CHOICE, np.random.default_rng(5))
    # one of another rung's shape, one that has just begun, and one that goes on
    assert [reply.next_own_state[0].ravel().tolist() for _, reply in answered] == [
        *([1.0] * 4, [1.0] * 2, [8.0] * 6)
    ]
    assert [reply.next_state for _, reply in answered] == [()] * 3


def test_a_worker_s_step_tells_whether_there_was_a_batch(tools) -> None:
    acting = snapshot_of(tools, PolicyVersion(2, 17))
    queue, outbox = PredictionQueue(max_requests=8, max_batch=8, clock=tools.Clock(0.5)), Outbox()
    try:
        step = make_step(
            queue, outbox, lambda _: acting, {"default": _CHOICE}, lambda: np.random.default_rng(5)
        )
        pending = pending_of([1, 2])
        assert queue.offer(pending) == []
        assert step(WaitMeter()) is True
        queue.close()
        assert step(WaitMeter()) is False
        [answered] = outbox.take()
        assert [item for item, _ in answered] == pending
    finally:
        outbox.close()
