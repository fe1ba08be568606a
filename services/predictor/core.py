"""A predictor's workers: they compute batches of requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.distributions import Distribution
from aclearn.rollout import ActInput, PolicySnapshot, act
from aclearn.telemetry import WaitMeter, part
from aclearn.types import State
from aclearn.wire import ActReply, ActRequest
from services.predictor.outbox import Answered, Outbox
from services.predictor.prediction_queue import Pending, PredictionQueue
from services.role.worker_pool import WORKER_WAITS_S, Step


def answer_batch(
    batch: Sequence[Pending],
    acting: PolicySnapshot,
    distribution: Distribution,
    rng: np.random.Generator,
    *,
    parameters: bool = False,
) -> Answered:
    """The replies to a batch for one policy, in its order.

    Args:
        parameters: whether replies have the parameters of the behaviour policy.
    """
    with part("batch"):
        given = _side_by_side([pending.request for pending in batch], acting.own_state or ())
    with part("inference"):
        chosen = act(acting, distribution, given, rng)
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
            pending.request.policy,
            tuple(each[rows] for each in chosen.next_own_state),
        )
        answered.append((pending, reply))
    return answered


def _side_by_side(requests: Sequence[ActRequest], own_state: Sequence[tuple[int, ...]]) -> ActInput:
    """All requests as one; one without a state has just begun, one without masks allows all.

    Args:
        own_state: shapes of a state of the acting policy's own; another one begins with zeros.
    """
    first = requests[0]
    state = next((_shapes_of(request.state) for request in requests if request.state), [])
    masked = next((request.masks for request in requests if request.masks is not None), None)
    masks = [
        np.ones((request.size, *masked.shape[1:]), np.bool_)
        if request.masks is None
        else request.masks
        for request in requests
        if masked is not None
    ]
    sizes = [request.size for request in requests]
    epsilons = [request.epsilon for request in requests if request.epsilon is not None]
    return ActInput(
        {
            name: _rows([request.observations[name] for request in requests])
            for name in first.observations
        },
        _states([request.state for request in requests], state, sizes),
        _rows(masks) if masks else None,
        _rows(epsilons) if epsilons else None,
        _states([request.own_state for request in requests], own_state, sizes),
    )


def _states(
    given: Sequence[State], shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]
) -> State:
    """The states one after another; zeros for one of other shapes."""
    fitting = [
        state
        if _shapes_of(state) == list(shapes)
        else tuple(np.zeros((size, *shape), np.float32) for shape in shapes)
        for state, size in zip(given, sizes, strict=True)
    ]
    return tuple(_rows(parts) for parts in zip(*fitting, strict=True))


def _shapes_of(state: State) -> list[tuple[int, ...]]:
    return [part.shape[1:] for part in state]


def _rows(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The concatenated arrays; a single one is not copied."""
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def make_step(
    queue: PredictionQueue,
    outbox: Outbox,
    acting: Callable[[str], PolicySnapshot | None],
    distributions: Mapping[str, Distribution],
    generator: Callable[[], np.random.Generator],
    *,
    parameters: bool = False,
    timeout_s: float = WORKER_WAITS_S,
) -> Step:
    """A worker's step: take a batch from the queue and answer it.

    If it raises, the requests of its batch are counted and not answered: their actors ask again.

    Args:
        acting: gives the acting version of a policy; requests are admitted only if there is one.
        distributions: policy → that of its actions.
        generator: makes the worker's random numbers, when the first batch comes.
    """
    rng: np.random.Generator | None = None

    def step(meter: WaitMeter) -> bool:
        nonlocal rng
        with meter.waiting("requests"):
            batch = queue.take(timeout_s=timeout_s)
        if batch:
            name = batch[0].request.policy  # that of all
            policy = acting(name)  # once per batch: the socket thread may swap policies meanwhile
            if policy is None:
                raise RuntimeError("a request was admitted before the first policy")
            rng = rng or generator()
            try:
                answered = answer_batch(
                    batch, policy, distributions[name], rng, parameters=parameters
                )
            except Exception:
                queue.give_up(batch)
                raise
            outbox.put(answered)
        return bool(batch)

    return step
