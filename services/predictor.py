"""The predictor: answers actors' observations in batches, with the newest weights."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.acting import sample_actions
from aclearn.allocator import keep_freed_memory
from aclearn.errors import WireError
from aclearn.monitoring import WaitMeter
from aclearn.policies import Architecture, PolicyVersion
from aclearn.wire import ActReply, ActRequest, Beat, Server
from compress import ArtifactPolicy, PolicyRuntime
from services.policies import architecture_of
from services.policy_client import PolicyClient, make_policy
from services.role import Membership, RoleContext

_LOGGER = logging.getLogger(__name__)

#: Longest wait for a request before the predictor looks at everything else.
_LOOK_EVERY_S = 0.02


@dataclass(frozen=True, eq=False)
class Pending:
    """A request that waits for its answer, with its sender's routing id."""

    identity: bytes
    request: ActRequest


def check_request(request: ActRequest, architecture: Architecture) -> None:
    """Raise `WireError` unless the observations fit the policy."""
    observations = request.observations
    shape, dtype = architecture.observation_shape, architecture.observation_dtype
    if observations.shape[1:] != shape or str(observations.dtype) != dtype:
        raise WireError(
            "bad_request",
            f"observations: expected {dtype} [B, {', '.join(map(str, shape))}], got "
            f"{observations.dtype} {list(observations.shape)}",
        )
    if len(observations) == 0:
        raise WireError("bad_request", "observations: expected at least one")
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is one of the sums that are refused
        finite = dtype == "uint8" or np.isfinite(observations.sum(dtype=np.float64))
    if not finite:
        raise WireError("bad_request", "observations: not finite")


def cut_batches(pending: Sequence[Pending], most: int) -> list[list[Pending]]:
    """Requests in their order as batches of at most `most` observations; a request stays whole."""
    batches: list[list[Pending]] = []
    size = 0
    for item in pending:
        count = len(item.request.observations)
        if not batches or size + count > most:
            batches.append([])
            size = 0
        batches[-1].append(item)
        size += count
    return batches


def answer_batch(
    batch: Sequence[Pending],
    runtime: PolicyRuntime | ArtifactPolicy,
    at: PolicyVersion,
    rng: np.random.Generator,
    chain: str = "none",
) -> list[tuple[bytes, ActReply]]:
    """The replies to a batch, in its order, all of one policy version."""
    parts: list[NDArray[Any]] = [item.request.observations for item in batch]
    observations = parts[0] if len(parts) == 1 else np.concatenate(parts)
    actions, log_probs = sample_actions(runtime.logits(observations), rng)
    replies = []
    start = 0
    for item in batch:
        rows = slice(start, start + len(item.request.observations))
        start = rows.stop
        reply = ActReply(
            item.request.request, at.epoch, at.version, actions[rows], log_probs[rows], chain
        )
        replies.append((item.identity, reply))
    return replies


class Predictor:
    """The prediction queue and the worker that empties it.

    Takes what is there, up to `max_batch` observations a batch. The queue is bounded by the
    number of actors: each has one request a group out.
    """

    def __init__(
        self,
        server: Server,
        runtime: PolicyRuntime | ArtifactPolicy,
        policy: PolicyClient,
        architecture: Architecture,
        *,
        max_batch: int,
        rng: np.random.Generator,
        meter: WaitMeter,
    ) -> None:
        self._server, self._runtime, self._policy = server, runtime, policy
        self._architecture, self._max_batch = architecture, max_batch
        self._rng, self._meter = rng, meter
        self._predictions = self._batches = 0

    def serve(self) -> None:
        """Answer what is waiting, or wait a little for something."""
        with self._meter.waiting("requests"):
            received = self._server.receive(_LOOK_EVERY_S)
        pending = []
        for identity, envelope in received:
            request = envelope.message
            assert isinstance(request, ActRequest)  # the server accepts nothing else
            try:
                check_request(request, self._architecture)
            except WireError as error:
                self._server.refuse(identity, error)
                continue
            pending.append(Pending(identity, request))
        for batch in cut_batches(pending, self._max_batch):
            policy = self._policy
            replies = answer_batch(batch, self._runtime, policy.at, self._rng, policy.chain)
            for identity, reply in replies:
                self._server.send(identity, reply)
                self._predictions += len(reply.actions)
            self._batches += 1

    def beat(self, final: bool) -> Beat:
        """What the predictor says of itself."""
        refused = self._server.refused
        return Beat(
            state="stopping" if final else "serving",
            counters={
                "predictions": self._predictions,
                "prediction_batches": self._batches,
                "refused": sum(refused.values()),
                **{f"refused.{reason}": count for reason, count in refused.items()},
            },
            gauges={
                "batch_mean": self._predictions / max(1, self._batches),
                "refused_messages": float(sum(refused.values())),
            },
            dropped={},
            waits=self._meter.seconds(),
            episode_returns=[],
            episode_lengths=[],
            final=final,
            note="",
        )


def run_predictor(context: RoleContext) -> None:
    """Run one predictor until it is told to stop."""
    keep_freed_memory()
    config = context.config
    architecture = architecture_of(config)
    runtime, policy = make_policy(
        context, architecture, config.predictor.runtime, threads=config.predictor.threads
    )
    server, endpoint = context.serve((ActRequest,))
    predictor = Predictor(
        server,
        runtime,
        policy,
        architecture,
        max_batch=config.predictor.max_batch,
        rng=np.random.default_rng((config.run.seed, context.index, 2)),
        meter=WaitMeter(),
    )
    membership = Membership(
        context.connect(context.monitor),
        hello=context.hello({"predictions": endpoint}),
        beat=predictor.beat,
        beat_every_s=config.monitor.beat_every_s,
    )
    while not context.stop and membership.stop_reason is None:
        membership.tick()
        policy.poll(membership)
        if policy.at.version >= 0:
            predictor.serve()
        else:
            # requests wait in the socket: whoever asked has no policy to act with anyway
            time.sleep(_LOOK_EVERY_S)
    membership.leave()
