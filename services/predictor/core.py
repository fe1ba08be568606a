"""A predictor's workers: threads that take batches, compute them and hand the replies over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions import Distribution
from aclearn.rollout import PolicySnapshot, act
from aclearn.telemetry import WaitMeter, part
from aclearn.types import State
from aclearn.wire import ActReply, ActRequest
from services.predictor.outbox import Answered, Outbox
from services.predictor.prediction_queue import Pending, PredictionQueue
from services.runtime.worker_pool import WORKER_WAITS_S, Step


def answer_batch(
    batch: Sequence[Pending],
    acting: PolicySnapshot,
    distribution: Distribution,
    rng: np.random.Generator,
    *,
    parameters: bool = False,
) -> Answered:
    """The replies to a batch, in its order, all by one policy.

    Args:
        batch: requests that were checked.
        acting: the policy.
        distribution: of the actions.
        rng: samples the actions.
        parameters: give the parameters that actions were sampled from as well.
    """
    requests = [pending.request for pending in batch]
    with part("batch"):
        observations = {
            name: _rows([request.observations[name] for request in requests])
            for name in requests[0].observations
        }
        state = _states_of(requests)
    with part("inference"):
        chosen = act(acting, distribution, observations, state, rng)
    answered = []
    start = 0
    for pending in batch:
        rows = slice(start, start + pending.size)
        start = rows.stop
        reply = ActReply(
            pending.request.request,
            acting.at.generation,
            acting.at.version,
            chosen.actions[rows],
            chosen.log_prob[rows],
            acting.chain,
            tuple(each[rows] for each in chosen.next_state),
            chosen.parameters[rows] if parameters and chosen.parameters is not None else None,
        )
        answered.append((pending, reply))
    return answered


def _rows(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The arrays one after the other; one alone is not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _states_of(requests: Sequence[ActRequest]) -> State:
    """The states of all requests in one; zeros where a request has none yet."""
    known = next((request.state for request in requests if request.state), ())
    states = [
        request.state
        or tuple(np.zeros((request.size, *like.shape[1:]), np.float32) for like in known)
        for request in requests
    ]
    return tuple(_rows(parts) for parts in zip(*states, strict=True))


def make_step(
    queue: PredictionQueue,
    outbox: Outbox,
    acting: Callable[[], PolicySnapshot | None],
    distribution: Distribution,
    rng: np.random.Generator,
    *,
    parameters: bool = False,
    timeout_s: float = WORKER_WAITS_S,
) -> Step:
    """A worker's step: take a batch from the queue, answer it.

    When it raises, the requests of its batch are counted and stay without an answer: their actors
    ask again.

    Args:
        queue: where batches come from.
        outbox: where replies go.
        acting: the policy that acts now; requests are let in only when there is one.
        distribution: of the actions.
        rng: the worker's own.
        parameters: as of `answer_batch`.
        timeout_s: longest wait for a batch.
    """

    def step(meter: WaitMeter) -> bool:
        with meter.waiting("requests"):
            batch = queue.take(timeout_s=timeout_s)
        if batch:
            policy = acting()  # once a batch: the sockets' thread may swap policies meanwhile
            if policy is None:
                raise RuntimeError("a request was let in before the first policy")
            try:
                answered = answer_batch(batch, policy, distribution, rng, parameters=parameters)
            except Exception:
                queue.give_up(batch)
                raise
            outbox.put(answered)
        return bool(batch)

    return step
