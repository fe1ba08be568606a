"""A metrics line of a run with several policies: sums, and the figures of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from aclearn.metrics.aggregator import MetricsAggregator
from aclearn.metrics.names import LEARNED_HERE, PART_SECONDS, POLICIES, WAIT_SHARE

if TYPE_CHECKING:  # the wire imports sockets
    from aclearn.wire import Heartbeat

#: Names of a line whose numbers are of the run, not of a policy.
_OF_THE_RUN: Final = frozenset(
    {
        *("time_s", "policy", "generation", "policy_version", "best_return"),
        *("checkpoint_failures", "unsaved_updates", "unsaved_steps", "checkpoint_error"),
        *(LEARNED_HERE, PART_SECONDS, WAIT_SHARE),
    }
)


def updates_of_all(line: Mapping[str, Any]) -> int:
    """The updates of a line, of all policies together, as in the name of a checkpoint."""
    return sum(int(each["updates"]) for each in (line.get(POLICIES) or {"": line}).values())


class PoliciesAggregator(MetricsAggregator):
    """The aggregator of a run with several policies, of which each has one of its own.

    Counts of the run are sums over the policies. Its mean return and length are means over the
    `judged` policies' own, since returns of opponents would cancel; null without any.

    Args:
        policies: names of all.
        judged: of those whose mean return decides about the best checkpoint.

    Raises:
        ValueError: `state` is invalid.
    """

    def __init__(
        self,
        now: float,
        policies: Sequence[str],
        judged: Sequence[str],
        *,
        resume_from: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(now, resume_from=resume_from, state=state)
        before, states = (resume_from or {}).get(POLICIES) or {}, (state or {}).get(POLICIES) or {}
        self._judged = judged
        self._of = {
            name: MetricsAggregator(
                now,
                resume_from=None if resume_from is None else before.get(name, {}),
                state=states.get(name),
            )
            for name in policies
        }

    @property
    @override
    def mean_of_100(self) -> float | None:
        means = [self._of[name].mean_of_100 for name in self._judged]
        return _mean(means)

    @override
    def state(self) -> dict[str, Any]:
        return super().state() | {POLICIES: {name: of.state() for name, of in self._of.items()}}

    @override
    def observe_heartbeat(
        self,
        role: str,
        incarnation: str,
        heartbeat: Heartbeat,
        now: float,
        *,
        clock_s: float | None = None,
        number: int = 0,
    ) -> None:
        super().observe_heartbeat(role, incarnation, heartbeat, now, clock_s=clock_s, number=number)
        for name in heartbeat.policies:
            self._of[name].observe_heartbeat(
                role, incarnation, heartbeat.of_policy(name), now, clock_s=clock_s, number=number
            )

    @override
    def role_gone(self, incarnation: str) -> None:
        super().role_gone(incarnation)
        for of in self._of.values():
            of.role_gone(incarnation)

    @override
    def line(self, now: float) -> dict[str, Any]:
        own = {
            name: {key: value for key, value in of.line(now).items() if key not in _OF_THE_RUN}
            for name, of in self._of.items()
        }
        judged = [own[name] for name in self._judged]
        return super().line(now) | {
            "policy": None,
            "return_mean_100": _mean([each["return_mean_100"] for each in judged]),
            "episode_length_mean": _mean([each["episode_length_mean"] for each in judged]),
            "episodes_in_mean": min((each["episodes_in_mean"] for each in judged), default=0),
            POLICIES: own,
        }


def of_policies(
    line: Mapping[str, Any], *figures: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Policy → its part of the line with further figures of it; {} of a run with one policy."""
    own = {name: dict(part) for name, part in line.get(POLICIES, {}).items()}
    for each in figures:
        for name, part in each.items():
            own.get(name, {}).update(part)
    return own


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None if there are none, or one is not known."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None
