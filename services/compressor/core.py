"""The compressor's steps: artifacts of new policies, and its metrics; no socket."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.config import CompressorConfig
from aclearn.metrics.names import LEAST_FOR_KL_MAX
from aclearn.policies import Architecture
from aclearn.telemetry import WaitMeter
from aclearn.types import PolicyId, PolicyVersion, Visited
from compress import (
    Artifact,
    CompressorChain,
    Fidelity,
    NeedsObservations,
    Policy,
    RefusedTensors,
)
from compress.link import is_word
from services.compressor.ladder import Ladder, Rung

_LOGGER = logging.getLogger(__name__)

#: Failures in a row after which the uncompressed policy is published: actors that keep an old
#: artifact fall behind until all their unrolls are too old.
_MOST_FAILURES = 5
#: Newest intervals between two artifacts in their mean.
_INTERVALS = 16


class Compressor:
    """The ladder of chains and its newest artifact. No socket.

    Args:
        chains: the ladder, checked against the architecture (`CompressorChain.plan`).
        attend: called within a compression, between parts of its work.

    Attributes:
        artifact: the newest one, None before the first.
        errors: class of a link's or check's error → count.
        made: number of artifacts of chains.
        uncompressed: number of uncompressed policies published.
        known: the newest version that is done with.
    """

    def __init__(
        self,
        chains: Sequence[CompressorChain],
        architecture: Architecture,
        config: CompressorConfig,
        *,
        seed: int,
        clock: Callable[[], float] = time.perf_counter,
        attend: Callable[[], None] = lambda: None,
    ) -> None:
        self._architecture, self._config, self._clock = architecture, config, clock
        self.ladder = Ladder(
            chains,
            observations=config.observations,
            to_compare=config.fidelity_observations,
            seed=seed,
            clock=clock,
            attend=attend,
        )
        self._published_at: deque[float] = deque(maxlen=_INTERVALS + 1)
        self._failures = self._calls = 0
        #: Rung → number of the newest call in which it was tried.
        self._called_at: dict[str, int] = {}
        self._failures_told: set[tuple[str, ...]] = set()
        self._seconds = 0.0
        self._policy: Policy | None = None
        self._fidelity: Fidelity | None = None
        self.artifact: Artifact | None = None
        self.errors: Counter[str] = Counter()
        self.made = 0
        self.uncompressed = 0
        self.known = PolicyVersion()
        self.meter = WaitMeter()

    def observe(self, visited: Visited) -> None:
        """Keep the newest visited observations."""
        self.ladder.observe(visited)

    def set_rung(self, rung: int) -> None:
        """Compress with another rung from now on; the last artifact stays until its first one.

        `known` is reset, so the newest weights are compressed again, at the same version.

        Raises:
            ValueError: the ladder has no such rung.
        """
        ladder = self.ladder
        if rung >= len(ladder.rungs):
            raise ValueError(f"expected a rung from 0 to {len(ladder.rungs) - 1}, got {rung}")
        if rung != ladder.current:
            before, kl_max = ladder.current, self._fidelity.kl_max if self._fidelity else None
            ladder.current = rung
            ladder.rung.chain.meter.forget()
            _LOGGER.info(
                "event=rung before=%d now=%d chain=%s version=%s kl_max_before=%s",
                *(before, rung, ladder.rung.chain.id, self.known, kl_max),
            )
            self._failures, self._fidelity, self.known = 0, None, PolicyVersion()

    def compress(self, at: PolicyVersion, tensors: Mapping[str, NDArray[np.float32]]) -> None:
        """Make the artifact of a new version; if a link fails, the previous one stays.

        `known` then stays too, so that these weights, or newer ones, are tried again. The next more
        faithful rung is published if the chain lacks observations, or if the artifact exceeds
        `compressor.max_kl` or was not compared. So it is if a link fails before the first artifact
        or several times in a row. The uncompressed policy ends the ladder.
        """
        policy = Policy.of(self._architecture, tensors, at)
        before, self.known = self.known, at
        started = time.perf_counter()
        try:
            self._calls += 1
            for rung in self.ladder.from_current():
                last = self._called_at.get(rung.chain.id, self._calls - 1)
                if last != self._calls - 1:
                    rung.context.restarts += 1  # what it measured is of weights long ago
                self._called_at[rung.chain.id] = self._calls
                artifact = self._try(rung, policy)
                if artifact is not None:
                    self._publish(artifact)
                    self.made += 1
                    return
                if rung.context.original is not policy:
                    return  # invalid weights: no chain can compress them
                if 0 < self._failures < _MOST_FAILURES and self.artifact is not None:
                    self.known = before
                    return
        finally:
            self._seconds = time.perf_counter() - started
        uncompressed = self._uncompressed_of(policy)
        if uncompressed is not None:
            self._publish(uncompressed)
            self.uncompressed += 1
            if self.ladder.is_uncompressed:
                self._fidelity = Fidelity(version=at.version)  # no distance from itself

    def newer_than(self, known: PolicyId, *, uncompressed: bool = False) -> Artifact | None:
        """The newest artifact if its version is newer, or its chain another one at this version."""
        artifact = self.artifact
        if uncompressed and self._policy is not None:
            artifact = self._uncompressed_of(self._policy)
        if artifact is None:
            return None
        offered = PolicyId(artifact.at, artifact.chain, known.policy)
        return artifact if offered.replaces(known) else None

    def counters(self) -> dict[str, int]:
        """For a heartbeat."""
        return {
            "artifacts": self.made,
            "uncompressed_artifacts": self.uncompressed,
            "errors": sum(self.errors.values()),
            **{f"errors.{kind}": count for kind, count in self.errors.items()},
        }

    def gauges(self) -> dict[str, float]:
        """For a heartbeat: quality and durations of the newest artifact.

        The distances are those of the chain's newest comparison, of a version that was published or
        not; they are missing before the first. `kl_max` needs `LEAST_FOR_KL_MAX` observations.
        """
        artifact, fidelity = self.artifact, self._fidelity
        rung = {"rung": float(self.ladder.current)}
        if artifact is None:
            return rung
        distances = ("kl_mean", "kl_variance", "kl_max", "agreement", "observations")
        near = {name: float(getattr(fidelity, name)) for name in distances if fidelity is not None}
        if near and near["observations"] < LEAST_FOR_KL_MAX and not self.ladder.is_uncompressed:
            del near["kl_max"]
        times, interval = self._published_at, {}
        if len(times) > 1:  # the mean of the newest
            interval["artifact_interval_s"] = (times[-1] - times[0]) / (len(times) - 1)
        return {
            **rung,
            **{name.replace("observations", "kl_observations"): x for name, x in near.items()},
            "artifact_bytes": float(artifact.bytes),
            "artifact_version": float(artifact.at.version),
            "compress_ms": 1000 * self._seconds,
            "compressed": float(artifact.chain == self.ladder.rung.chain.id),
            **interval,
            **self._link_gauges(),
            **{f"latency_ms_{size}": ms for size, ms in artifact.latency_ms.items()},
        }

    def heartbeat_fields(self) -> dict[str, Any]:
        """Counters and gauges of the same moment."""
        gauges = self.gauges()  # first: it counts its own errors
        counters = self.counters()
        shown = ("artifacts", "errors", "uncompressed_artifacts")
        return {"counters": counters, "gauges": gauges | {n: float(counters[n]) for n in shown}}

    def _try(self, rung: Rung, policy: Policy) -> Artifact | None:
        """The artifact of this rung; None where it cannot be made or is too far from the policy."""
        try:
            artifact = rung.chain.compress(policy, rung.context)
        except NeedsObservations:
            return None
        except Exception as error:
            if rung.context.original is policy:
                # a link may be the user's code: the run continues after any error
                self._tell_where(error, rung.chain, policy.at)
                self._failures += rung is self.ladder.rung
            self._report(error)
            return None
        finally:
            if rung.context.original is policy:
                self._policy = policy
        measured = artifact.fidelity.observations > 0
        if rung is self.ladder.rung:  # while it attended, another one may have been set
            self._failures = 0
            self._fidelity = rung.chain.meter.fidelity
        most = self._config.kl_bound(self._architecture.action_spec)
        # not as `kl > most`: an artifact without a measured KL, or with NaN, must not pass
        if most is None or (measured and artifact.fidelity.kl_mean <= most):
            return artifact
        self.errors["unfaithful"] += measured
        return None

    def _tell_where(self, error: Exception, chain: CompressorChain, at: PolicyVersion) -> None:
        """Log the traceback of the first failure of a kind.

        Every version may fail and no log is rotated; `_report` logs a line for each failure.
        """
        kind = _kind_of(error)
        if kind not in self._failures_told:
            self._failures_told.add(kind)
            _LOGGER.error("event=link_failed chain=%s version=%s", chain.id, at, exc_info=error)

    def _report(self, error: Exception) -> None:
        kind = type(error).__name__
        self.errors[kind] += 1
        _LOGGER.error(
            "event=not_compressed failures=%d error=%s reason=%r", self._failures, kind, str(error)
        )

    def _publish(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self._published_at.append(self._clock())

    def _uncompressed_of(self, policy: Policy) -> Artifact | None:
        """The uncompressed policy as an artifact; None where its parameters are not finite.

        So it is where a network of the user's own gives what cannot be exported: the run goes on.
        """
        try:
            artifact = self.ladder.uncompressed(policy)
        except Exception as error:
            if not isinstance(error, RefusedTensors):
                self._tell_where(error, self.ladder.uncompressed_chain, policy.at)
            self._report(error)
            return None
        if artifact is not None:
            self._policy = policy
        return artifact

    def _link_gauges(self) -> dict[str, float]:
        """The links' gauges, limited to valid heartbeat values; empty where a link fails."""
        rung = self.ladder.rung
        try:
            said = {name: float(x) for name, x in rung.chain.gauges(rung.context).items()}
        except Exception as error:
            # a link may be the user's code; logged once, since heartbeats come several times a
            # second
            if not self.errors["gauges"]:
                _LOGGER.exception("event=no_gauges chain=%s reason=%r", rung.chain.id, str(error))
            self.errors["gauges"] = 1
            return {}
        return {
            name: value for name, value in said.items() if math.isfinite(value) and is_word(name)
        }


def _kind_of(error: Exception) -> tuple[str, ...]:
    """The error's class, and the functions of ours, the chain and the link in its traceback.

    Without its text, whose numbers would make each error a kind of its own.
    """
    calls = [frame.f_code.co_qualname for frame, _ in traceback.walk_tb(error.__traceback__)]
    return type(error).__name__, *calls[:3]
