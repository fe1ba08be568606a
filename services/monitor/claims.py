"""Bounds on hellos and heartbeats."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeVar

from aclearn.errors import EndpointError
from aclearn.types import DEFAULT_POLICY, MOST_COHORTS, MOST_INFO_METRICS, EpisodeCohort
from aclearn.types.bounds import LARGEST_FIGURE
from aclearn.wire import Heartbeat, Hello, PolicyNumbers, check_peer_address
from services.roles import MOST_NUMBER, ROLES

#: Most bytes of an incarnation or label; most endpoints of a role and bytes of each; most gauges
#: and labels of a heartbeat. They keep one peer from filling the messages about all.
MOST_LABEL_BYTES = 64
_MOST_ENDPOINTS, _MOST_ENDPOINT_BYTES = 8, 256
MOST_GAUGES, MOST_LABELS = 64, 72
_MOST_DIGESTS = 256
#: Half of a CURVE pair, in Z85.
_PUBLIC_KEY: Final = re.compile(r"[0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40}")
#: Most entries of each mapping among the numbers of one policy.
_OF_A_POLICY: Final = {"gauges": MOST_GAUGES, "dropped": MOST_LABELS}
_NumbersT = TypeVar("_NumbersT", Heartbeat, PolicyNumbers)
#: Largest count of a heartbeat, which JSON readers carry exactly.
_MOST_COUNT = 2**53
#: Counts that never fall while a process lives.
_GROWING: Final[tuple[str, ...]] = ("env_steps", "learned_steps", "episodes", "updates")
#: Most agent steps in the first heartbeat of a process, which may be years old, and between two
#: heartbeats, during which the monitor may have been away for hours.
_MOST_FIRST_STEPS, _MOST_MORE_STEPS = 2**45, 2**36


def hello_fault(incarnation: str, hello: Hello, fixed: Mapping[str, int]) -> str | None:
    """Why a hello is rejected, as text for its sender; None if it is valid.

    Args:
        fixed: role → number of its processes, where that is exact.
    """
    if (fault := role_fault(hello.role)) is not None:
        return fault
    if hello.number > MOST_NUMBER:
        return f"its number is above {MOST_NUMBER}; give it a lower one with --name"
    if (most := fixed.get(hello.role)) is not None and hello.number >= most:
        if most == 1:
            return f"a run has one {hello.role}, {hello.role}-0; start it without --name"
        return (
            f"this run has {most} processes of role {hello.role}, {hello.role}-0 to "
            f"{hello.role}-{most - 1}; start it under one of these names"
        )
    if len(incarnation.encode()) > MOST_LABEL_BYTES:
        return f"its incarnation has more than {MOST_LABEL_BYTES} bytes"
    endpoints = hello.endpoints
    long = [t for pair in endpoints.items() for t in pair if len(t.encode()) > _MOST_ENDPOINT_BYTES]
    if len(endpoints) > _MOST_ENDPOINTS or long:
        return (
            f"it names {len(endpoints)} endpoints, at most {_MOST_ENDPOINTS} of at most "
            f"{_MOST_ENDPOINT_BYTES} bytes are possible"
        )
    long = [t for pair in hello.digests.items() for t in pair if len(t.encode()) > MOST_LABEL_BYTES]
    if len(hello.digests) > _MOST_DIGESTS or long:
        return (
            f"it names {len(hello.digests)} digests, at most {_MOST_DIGESTS} of at most "
            f"{MOST_LABEL_BYTES} bytes are possible"
        )
    # other roles would send their requests to that endpoint
    if foreign := endpoints.keys() - set(ROLES[hello.role].endpoints):
        return f"a process of role {hello.role} serves no {min(foreign)}"
    return None


def endpoint_fault(hello: Hello) -> str | None:
    """Why others could not connect to the endpoints of a hello, as text; None if they can try."""
    if hello.server_key and not _PUBLIC_KEY.fullmatch(hello.server_key):
        return "its server_key is no public key: expected 40 characters of Z85"
    for name, address in hello.endpoints.items():
        try:
            check_peer_address(address)
        except EndpointError as error:
            return f"its endpoint {name}: {error}"
    return None


def role_fault(role: str) -> str | None:
    """Why a process cannot have this role, as text for its log; None if it can."""
    if role in ROLES:
        return None
    return f"its role is unknown; expected one of {', '.join(ROLES)}"


def number_fault(role: str, fixed: Mapping[str, int]) -> str | None:
    """Why this role gets no number, as text for its log; None if it does."""
    if fixed.get(role) == 1:
        return f"a run has one {role}, {role}-0, which asks for no number"
    return role_fault(role)


def without_too_much(heartbeat: Heartbeat) -> Heartbeat:
    """The heartbeat without gauges and labels beyond a status; a user's link may have many."""
    parts = {name: _fitting(each, _OF_A_POLICY) for name, each in heartbeat.policies.items()}
    fitting = _fitting(heartbeat, {**_OF_A_POLICY, "waits": MOST_LABELS, "parts": MOST_LABELS})
    if all(parts[name] is each for name, each in heartbeat.policies.items()):
        return fitting
    return replace(fitting, policies=parts)


class HeartbeatClaims:
    """Checks each heartbeat's numbers against those of the previous one.

    Args:
        policies: names of the run's policies, where it has several.
    """

    def __init__(self, policies: Collection[str] = ()) -> None:
        self._policies = policies
        self._before: dict[str, dict[str, int]] = {}

    def fault(self, incarnation: str, heartbeat: Heartbeat) -> str | None:
        """Why a heartbeat is rejected, as text for its sender; None if it is valid."""
        unknown = heartbeat.policies.keys() - set(self._policies)
        unknown |= heartbeat.actors.keys() - set(self._policies or (DEFAULT_POLICY,))
        if unknown:
            return f"this run has no policy {min(unknown)[:MOST_LABEL_BYTES]!r}"
        if heartbeat.actors or heartbeat.actor_steps:
            try:
                heartbeat.seen()
            except ValueError as error:
                return f"actors: {error}"
        own = {policy: heartbeat.of_policy(policy) for policy in heartbeat.policies}
        for each in (heartbeat, *own.values()):
            if (fault := _numbers_fault(each)) is not None:
                return fault
        now: dict[str, int] = {}
        for policy, each in {"": heartbeat, **own}.items():
            most = _MOST_FIRST_STEPS
            for name in _GROWING:
                if name not in each.counters:
                    continue
                label = f"{name} of {policy}" if policy else name
                now[label] = count = each.counters[name]
                before = self._before.get(incarnation, {}).get(label)
                if before is not None and count < before:
                    return f"{label} fell from {before} to {count}"
                if incarnation in self._before:
                    most = (before or 0) + _MOST_MORE_STEPS
                if name == "env_steps" and count > most:
                    return f"{label} is above {most}, more than a process can have taken"
        self._before[incarnation] = now
        return None

    def forget(self, incarnation: str) -> None:
        """Drop the counts of a process that has left."""
        self._before.pop(incarnation, None)


def _numbers_fault(heartbeat: Heartbeat) -> str | None:
    """Why the numbers of all policies or of one cannot be."""
    for name, count in (*heartbeat.counters.items(), *heartbeat.dropped.items()):
        if count > _MOST_COUNT:
            return f"{name[:MOST_LABEL_BYTES]} is above 2^53"
    figures = (heartbeat.gauges.values(), heartbeat.waits.values(), heartbeat.parts.values())
    numbers = itertools.chain(*figures, heartbeat.episode_returns)
    if any(abs(number) > LARGEST_FIGURE for number in numbers):
        return f"a gauge, a time or a return is beyond {LARGEST_FIGURE:g}"
    if len(heartbeat.episode_policies) not in (0, len(heartbeat.episode_returns)):
        return "episode_policies has not one entry for each of episode_returns"
    if len(heartbeat.cohorts) > MOST_COHORTS:
        return f"it has more than {MOST_COHORTS} cohorts"
    faults = (_cohort_fault(cohort, heartbeat.clock_s) for cohort in heartbeat.cohorts)
    return next((fault for fault in faults if fault is not None), None)


def _cohort_fault(cohort: EpisodeCohort, clock_s: float) -> str | None:
    counts = (cohort.episodes, cohort.length_sum, *cohort.info_counts.values())
    sums = (cohort.return_sum, cohort.begun_s, clock_s, *cohort.info_sums.values())
    if cohort.episodes < 1 or max(counts) > _MOST_COUNT or max(map(abs, sums)) > LARGEST_FIGURE:
        return f"a cohort has no episode, a count above 2^53 or a sum beyond {LARGEST_FIGURE:g}"
    names = cohort.info_sums.keys()
    long = any(len(name.encode()) > MOST_LABEL_BYTES for name in names)
    if long or len(names) > MOST_INFO_METRICS or names != cohort.info_counts.keys():
        return f"a cohort has more than {MOST_INFO_METRICS} figures of info, or ones without count"
    if cohort.begun_s > clock_s:
        return "a cohort began after the heartbeat"
    return None


def _fitting(numbers: _NumbersT, most: Mapping[str, int]) -> _NumbersT:
    bounded: dict[str, Any] = {}
    for name, count in most.items():
        values = getattr(numbers, name)
        if len(values) > count or not all(map(_fits, values)):
            fitting = (item for item in values.items() if _fits(item[0]))
            bounded[name] = dict(itertools.islice(fitting, count))
    return replace(numbers, **bounded) if bounded else numbers


@lru_cache(4096)  # labels come again in every heartbeat
def _fits(label: str) -> bool:
    return len(label.encode()) <= MOST_LABEL_BYTES
