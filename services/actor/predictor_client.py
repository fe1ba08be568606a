"""Requests actions from a predictor."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from aclearn.rollout import ActInput
from aclearn.telemetry import WaitMeter
from aclearn.types import DEFAULT_POLICY, ActionBatch, ActionSpec, PolicyVersion, is_compressed
from aclearn.types.bounds import LARGEST_NUMBER
from aclearn.wire import REPLY_WITHIN_S, ActCancel, ActReply, ActRequest, Message
from services.actor.action_sources import ActionSource
from services.role.monitor_client import MonitorClient
from services.role.request_client import PeerLink, RequestClient
from services.role.requests import RetryPolicy

_LOGGER = logging.getLogger(__name__)

#: A predictor that was silent for two retry intervals is replaced by the next one; a slow one keeps
#: the request's place in its queue.
_RETRY = RetryPolicy(
    answer_within_s=REPLY_WITHIN_S,
    silent_after_s=2 * REPLY_WITHIN_S,
    reached_within_s=2 * REPLY_WITHIN_S,
)

#: Seconds for cancellations to leave the socket.
_LAST_WORDS_WITHIN_S = 0.5


class PredictorClient(ActionSource):
    """GA3C: a predictor chooses the actions.

    Late requests are sent again; silent predictors replaced.

    Replies are matched by request number, so late ones are ignored.

    Args:
        parameters: P, where a reply must have the behaviour parameters `[B, P]`; else 0.
        state: the shape of each part of the policy's state in one environment.
        policy: name of the one that chooses.
    """

    def __init__(
        self,
        link: PeerLink,
        monitor: MonitorClient,
        meter: WaitMeter,
        action: ActionSpec,
        *,
        parameters: int = 0,
        state: tuple[tuple[int, ...], ...] = (),
        policy: str = DEFAULT_POLICY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = RequestClient[int](link, _RETRY, self._take, clock)
        self._monitor, self._meter = monitor, meter
        self._action, self._parameters, self._state = action, parameters, state
        self._policy = policy
        self._refused = False
        self._number = 0
        self._asked: dict[int, ActRequest] = {}
        self._replies: dict[int, ActionBatch] = {}
        self.predictions = 0

    @override
    def poll(self) -> None:
        with self._meter.part("wire"):
            self._client.poll(self._monitor)

    @override
    def request(
        self, group: int, given: ActInput, original: NDArray[np.bool_] | None = None
    ) -> None:
        """`given` must not change until the reply; a predictor has one version of a policy."""
        self._number += 1
        self._replies.pop(group, None)
        self._cancel(group)
        seen, state, masks, epsilon, own_state = given
        asked = ActRequest(
            self._number,
            dict(seen),
            REPLY_WITHIN_S,
            state,
            masks,
            epsilon,
            self._policy,
            own_state=own_state,
        )
        self._asked[group] = asked
        with self._meter.part("wire"):
            self._client.ask(group, asked)

    @override
    def take(self, group: int, timeout_s: float) -> ActionBatch | None:
        if group not in self._replies:
            with self._meter.waiting("actions"):
                self._client.receive(timeout_s)
        return self._replies.pop(group, None)

    @override
    def gauges(self) -> dict[str, float]:
        return {"repeated_requests": float(self._client.requests.repeated)}

    @override
    def close(self) -> None:
        for group in list(self._asked):
            self._cancel(group)
        if (client := self._client.link.client) is not None:
            client.close(linger_s=_LAST_WORDS_WITHIN_S)

    def _cancel(self, group: int) -> None:
        if (asked := self._asked.pop(group, None)) is not None:
            self._client.cancel(group, ActCancel(asked.request))

    def _take(self, reply: Message) -> int | None:
        """The group of the answered request; None for a late reply."""
        if not isinstance(reply, ActReply):
            return None
        for group, asked in self._asked.items():
            if reply.request == asked.request and self._fits(reply, asked):
                self._replies[group] = ActionBatch(
                    reply.actions,
                    reply.log_prob,
                    PolicyVersion(reply.generation, reply.version),
                    (reply.chain,),
                    parameters=reply.behaviour_parameters,
                    state=asked.state,
                    next_state=reply.next_state,
                    next_own_state=reply.next_own_state,
                )
                self.predictions += len(reply.actions)
                del self._asked[group]
                return group
        return None

    def _fits(self, reply: ActReply, asked: ActRequest) -> bool:
        """Whether the reply has possible actions for all observations; the first bad is logged."""
        parameters, wanted = reply.behaviour_parameters, self._parameters
        action, actions, size = self._action, reply.actions, asked.size
        fits = actions.shape == (size, *action.shape) and len(reply.log_prob) == size
        fits = fits and actions.dtype == np.dtype(action.dtype)
        fits = fits and bool(action.choices_exist(actions).all())
        if fits and asked.masks is not None:
            fits = bool(action.allowed(actions, asked.masks).all())
        if wanted and fits:
            fits = (
                parameters is not None
                and parameters.shape == (size, wanted)
                and bool(np.isfinite(parameters).all())
            )
        fits = fits and self._has_state(reply, size)
        if not (fits or self._refused):
            self._refused = True
            shape = "none" if parameters is None else list(parameters.shape)
            _LOGGER.warning(
                "event=reply_refused by=%s detail='expected %d of %s that are allowed, finite "
                "behaviour_parameters [%d, %d] and a state of %s, got %d, %s and %s; has it the "
                "same actors.behaviour_parameters and policy.memory?'",
                self._client.link.role, size, action, size, wanted, list(self._state),
                len(actions), shape, [part.shape[1:] for part in reply.next_state],
            )  # fmt: skip
        return fits

    def _has_state(self, reply: ActReply, size: int) -> bool:
        """Whether the reply has a possible next state, of the policy or of a compressed one."""
        own, state, compressed = reply.next_own_state, reply.next_state, is_compressed(reply.chain)
        expected = [(size, *shape) for shape in self._state]
        return (
            ([part.shape for part in state] == (expected if state or not compressed else []))
            and all(len(part) == size for part in own)
            and all(bool((np.abs(part) <= LARGEST_NUMBER).all()) for part in (*state, *own))
        )
