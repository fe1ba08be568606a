"""The compressor's line to the trainer: what it pulls, and when it asks again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from aclearn.types import PolicyVersion
from aclearn.wire import (
    NoNewerWeights,
    ObservationsRequest,
    RecentObservations,
    Weights,
    WeightsRequest,
)
from services.runtime.monitor_client import MonitorClient
from services.runtime.peer_link import PeerLink

_LOGGER = logging.getLogger(__name__)

#: A question that got no answer for so long is asked again.
_ANSWER_WITHIN_S = 5.0
#: Least time between two questions for weights.
_ASK_EVERY_S = 0.02


class TrainerClient:
    """The compressor's line to the trainer: newest weights, and observations now and then."""

    def __init__(
        self,
        link: PeerLink,
        *,
        observations: int,
        observations_every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link, self._clock = link, clock
        self._count, self._every_s = observations, observations_every_s
        self._asked_weights = self._asked_observations = float("-inf")
        self._waits_for_weights = False

    def poll(
        self, membership: MonitorClient, known: PolicyVersion, *, wanted: bool
    ) -> tuple[Weights | None, dict[str, NDArray[Any]] | None]:
        """Weights newer than `known` and observations, where they have come; asks for more.

        Args:
            membership: names the trainer.
            known: the newest version that is here.
            wanted: whether newer weights are wanted now.
        """
        if self._link.follow(membership):
            self._waits_for_weights = False
        client, weights, observations = self._link.client, None, None
        if client is None:
            return None, None
        while (envelope := client.receive(0.0)) is not None:
            message = envelope.message
            if isinstance(message, RecentObservations):
                observations = message.observations
                continue
            self._waits_for_weights = False
            if isinstance(message, Weights):
                if PolicyVersion(message.generation, message.version) > known:
                    weights = message
            elif not isinstance(message, NoNewerWeights):
                _LOGGER.warning("event=unexpected_message kind=%s", type(message).__name__)
        now = self._clock()
        late = now - self._asked_weights > _ANSWER_WITHIN_S
        pause = now - self._asked_weights > _ASK_EVERY_S
        if wanted and weights is None and pause and (late or not self._waits_for_weights):
            request = WeightsRequest(known.generation, known.version)
            self._waits_for_weights = client.send(request)
            self._asked_weights = now
        due = now - self._asked_observations >= self._every_s
        if due and client.send(ObservationsRequest(self._count)):
            self._asked_observations = now
        return weights, observations
