"""Pulls weights from the trainer: "I have this version, give me newer, or nothing"."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from aclearn.policies import PolicyVersion
from aclearn.wire import ErrorReply, NoNewerWeights, Weights, WeightsRequest
from compress import PolicyRuntime, RefusedTensors
from services.role import Membership, PeerLink

_LOGGER = logging.getLogger(__name__)

#: A request that got no answer for so long is asked again.
_ANSWER_WITHIN_S = 5.0
#: Least time between two questions.
_ASK_EVERY_S = 0.05
#: Swapping weights may take this share of a role's time; with costly swaps it asks less often.
_SWAP_SHARE = 0.03


class WeightsClient:
    """Keeps a runtime at the trainer's newest version. `poll` never blocks.

    Weights that do not fit or are not finite are refused and counted; the old ones go on.

    Attributes:
        at: the version that the runtime holds.
        swaps: how often it was replaced.
        refused: how often weights were refused.
    """

    def __init__(
        self,
        link: PeerLink,
        runtime: PolicyRuntime,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._runtime, self._clock = link, runtime, clock
        self._asked_at: float | None = None
        self._next_ask = clock()
        self._refused_at: PolicyVersion | None = None
        self.at = PolicyVersion()
        self.swaps = 0
        self.refused = 0

    def poll(self, membership: Membership) -> None:
        """Take an answer if there is one, and ask when it is time."""
        if self._link.follow(membership):
            self._asked_at = None
        client = self._link.client
        if client is None:
            return
        while (envelope := client.receive(0.0)) is not None:
            self._asked_at = None
            self._next_ask = self._clock() + _ASK_EVERY_S
            message = envelope.message
            if isinstance(message, Weights):
                self._take(PolicyVersion(message.epoch, message.version), message.tensors)
            elif not isinstance(message, NoNewerWeights | ErrorReply):
                _LOGGER.warning("event=unexpected_message kind=%s", type(message).__name__)
        now = self._clock()
        if self._asked_at is not None and now - self._asked_at > _ANSWER_WITHIN_S:
            self._asked_at = None
        if self._asked_at is None and now >= self._next_ask:
            known = max(self.at, self._refused_at or self.at)
            if client.send(WeightsRequest(known.epoch, known.version)):
                self._asked_at = now
            else:
                self._next_ask = now + _ASK_EVERY_S

    def _take(self, at: PolicyVersion, tensors: Mapping[str, NDArray[np.float32]]) -> None:
        if at <= self.at:
            return  # an answer that was overtaken
        started = self._clock()
        try:
            self._runtime.swap(tensors)
        except RefusedTensors as error:
            self.refused += 1
            self._refused_at = at
            _LOGGER.error("event=weights_refused version=%s reason=%r", at, str(error))
            return
        self.at = at
        self.swaps += 1
        now = self._clock()
        self._next_ask = now + max(_ASK_EVERY_S, (now - started) / _SWAP_SHARE)
