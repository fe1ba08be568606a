"""Sources of an actor's actions: a local policy, or a predictor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from aclearn.distributions import Distribution
from aclearn.rollout import ActInput, act, act_in_parts
from aclearn.telemetry import WaitMeter
from aclearn.types import ActionBatch
from services.actor.fresh_weights import FreshWeights
from services.policy.client import PolicyClient


class ActionSource(Protocol):
    """Actions for groups of environments: `request`, then `take` until they are ready."""

    predictions: int

    def poll(self) -> None:
        """Exchange due messages; never blocks."""

    def request(
        self, group: int, given: ActInput, original: NDArray[np.bool_] | None = None
    ) -> None:
        """Request actions for a group.

        Args:
            original: `[B]`, True where the uncompressed policy must choose; None: nowhere.
        """

    def hold_original(self, wanted: bool) -> None:
        """Start or stop holding the uncompressed policy beside the current rung's.

        No effect where there is one policy.
        """
        return

    @property
    def has_own_state(self) -> bool:
        """Whether the current rung's policy has a state that the uncompressed one cannot read."""
        return False

    def take(self, group: int, timeout_s: float) -> ActionBatch | None:
        """The actions of the group's last request; None if there are none within `timeout_s`."""

    def gauges(self) -> dict[str, float]:
        """For the actor's heartbeat."""

    def close(self) -> None:
        """Cancel requests that wait, if any do."""
        return


class LocalActions(ActionSource):
    """IMPALA and AcceRL: the actor runs the policy itself, with its newest weights.

    It can hold two policies, the current rung's and the uncompressed one. While the second one is
    missing or of another generation, the first one replaces it.

    Args:
        make_original: makes a client of the uncompressed policy.
        fresh: decides whether weights are new enough to act; None: always.
    """

    def __init__(
        self,
        client: PolicyClient,
        distribution: Distribution,
        rng: np.random.Generator,
        poll: Callable[[PolicyClient], None],
        meter: WaitMeter,
        make_original: Callable[[], PolicyClient] | None = None,
        fresh: FreshWeights | None = None,
    ) -> None:
        self._client, self._rng = client, rng
        self._distribution = distribution
        self._poll, self._meter = poll, meter
        self._make_original, self._fresh = make_original, fresh
        self._original: PolicyClient | None = None
        self._waiting: dict[int, tuple[ActInput, NDArray[np.bool_] | None]] = {}
        self.predictions = 0

    @override
    def poll(self) -> None:
        with self._meter.part("swap"):
            for client in self._clients():
                self._poll(client)

    @override
    def request(
        self, group: int, given: ActInput, original: NDArray[np.bool_] | None = None
    ) -> None:
        self._waiting[group] = given, original

    @override
    def hold_original(self, wanted: bool) -> None:
        if wanted and self._original is None and self._make_original is not None:
            self._original = self._make_original()
        elif not wanted and self._original is not None:
            self._original.close()
            self._original = None

    @property
    @override
    def has_own_state(self) -> bool:
        acting = self._client.acting
        return acting is not None and acting.own_state is not None

    @override
    def take(self, group: int, timeout_s: float) -> ActionBatch | None:
        """Run the policy; None before the first weights, and while they are not fresh."""
        current = self._client.acting
        if current is None or (self._fresh and not self._fresh.allow(group, current.at)):
            with self._meter.waiting("weights" if current is None else "newer weights"):
                self._client.wait(timeout_s)
            return None
        given, wanted = self._waiting.pop(group)
        original = self._original.acting if self._original else None
        with self._meter.part("inference"):
            if (
                wanted is None
                or original is None
                or original.at.generation != current.at.generation
            ):
                chosen = act(current, self._distribution, given, self._rng)
            else:
                policies, which = (current, original), wanted.astype(np.int32)
                chosen = act_in_parts(policies, which, self._distribution, given, self._rng)
        self.predictions += len(chosen.actions)
        return chosen

    @override
    def gauges(self) -> dict[str, float]:
        each = [client.gauges() for client in self._clients()]
        return {name: sum(gauges[name] for gauges in each) for name in each[0]}

    def _clients(self) -> list[PolicyClient]:
        return [self._client, *([self._original] if self._original else [])]
