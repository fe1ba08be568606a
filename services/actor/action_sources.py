"""Where an actor's actions come from: the policy that it holds, or a predictor."""

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
    """Actions for groups of environments: `request`, then `take` until they are there."""

    predictions: int

    def poll(self) -> None:
        """Do what is due; never blocks."""

    def request(self, group: int, observations: Observations, state: State) -> None:
        """Ask for actions for a group's observations, leaf → `[B, *shape]`, and state."""

    def take(self, group: int, timeout_s: float) -> ActionBatch | None:
        """The actions of the group's last request; None if there are none within `timeout_s`."""

    def gauges(self) -> dict[str, float]:
        """For the actor's heartbeat."""

    def close(self) -> None:
        """Want no more actions."""


class LocalActions:
    """IMPALA and AcceRL: the actor runs the policy itself, on its newest weights.

    Args:
        client: has the policy.
        distribution: of the actions.
        rng: samples the actions.
        poll_weights: lets `client` ask and take answers.
        meter: counts the wait for the first weights, and what inference and new weights take.
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
        """Keep the observations until `take`, when the newest weights act on them."""
        self._waiting[group] = observations, state

    def take(self, group: int, timeout_s: float) -> ActionBatch | None:
        """Run the policy; None only before the very first weights."""
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
        """What became of the policies that came."""
        return self._client.gauges()

    def close(self) -> None:
        """Nothing was asked for, so nothing is cancelled."""
