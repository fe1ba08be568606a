"""Sources of an actor's actions: a local policy, or a predictor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from aclearn.distributions import Distribution
from aclearn.rollout import act
from aclearn.telemetry import WaitMeter
from aclearn.types import ActionBatch, State
from aclearn.types.env_spec import Observations
from services.runtime.policy_client import PolicyClient


class ActionSource(Protocol):
    """Actions for groups of environments: `request`, then `take` until they are ready."""

    predictions: int

    def poll(self) -> None:
        """Exchange due messages; never blocks."""

    def request(self, group: int, observations: Observations, state: State) -> None:
        """Request actions for a group.

        Args:
            group: index of the group.
            observations: leaf → `[B, *shape]`.
            state: of the policy, before these observations.
        """

    def take(self, group: int, timeout_s: float) -> ActionBatch | None:
        """The actions of the group's last request; None if there are none within `timeout_s`."""

    def gauges(self) -> dict[str, float]:
        """For the actor's heartbeat."""

    def close(self) -> None:
        """Cancel all requests."""


class LocalActions:
    """IMPALA and AcceRL: the actor runs the policy itself, with its newest weights.

    Args:
        client: holds the policy.
        distribution: of the actions.
        rng: samples the actions.
        poll_weights: exchanges messages of `client`.
        meter: measures the wait for the first weights, inference and new weights.
    """

    def __init__(
        self,
        client: PolicyClient,
        distribution: Distribution,
        rng: np.random.Generator,
        poll_weights: Callable[[], None],
        meter: WaitMeter,
    ) -> None:
        self._client, self._rng = client, rng
        self._distribution = distribution
        self._poll_weights, self._meter = poll_weights, meter
        self._waiting: dict[int, tuple[Observations, State]] = {}
        self.predictions = 0

    def poll(self) -> None:
        """Look for newer weights."""
        with self._meter.part("swap"):
            self._poll_weights()

    def request(self, group: int, observations: Observations, state: State) -> None:
        """Keep the observations until `take`, which uses the newest weights."""
        self._waiting[group] = observations, state

    def take(self, group: int, timeout_s: float) -> ActionBatch | None:
        """Run the policy; None only before the first weights."""
        if self._client.acting is None:
            with self._meter.waiting("weights"):
                time.sleep(timeout_s)
            return None
        observations, state = self._waiting.pop(group)
        with self._meter.part("inference"):
            chosen = act(self._client.acting, self._distribution, observations, state, self._rng)
        self.predictions += len(chosen.actions)
        return chosen

    def gauges(self) -> dict[str, float]:
        """Counts of received policies."""
        return self._client.gauges()

    def close(self) -> None:
        """Nothing to cancel."""
