"""The compressor's steps: artifacts of new policies, and its metrics; no socket."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.config import CompressorConfig
from aclearn.policies import Architecture
from aclearn.telemetry import WaitMeter
from aclearn.types import PolicyVersion
from compress import (
    ONNX,
    Artifact,
    CompressorChain,
    Context,
    Fidelity,
    Fusion,
    NeedsObservations,
    Policy,
    RefusedTensors,
)
from compress.link import is_word
from services.runtime.policy_factory import warn_of_idle_links

_LOGGER = logging.getLogger(__name__)

#: Failures in a row after which the uncompressed policy is published: actors that keep an old
#: artifact fall behind until all their unrolls are too old.
_MOST_FAILURES = 5
#: Newest intervals between two artifacts in their mean.
_INTERVALS = 16


class Compressor:
    """The chain and its newest artifact. No socket.

    Args:
        chain: checked against the architecture (`CompressorChain.plan`).
        architecture: of the uncompressed policy.
        config: the configuration's group.
        seed: of all random numbers.
        clock: seconds, for time limits of links and the intervals.

    Attributes:
        artifact: the newest one, None before the first.
        errors: class of a link's or check's error → count.
        made: number of artifacts of the chain.
        uncompressed: number of uncompressed policies published instead.
        known: the newest version that is done with.
        meter: time of the owning thread by part.
    """

    def __init__(
        self,
        chain: CompressorChain,
        architecture: Architecture,
        config: CompressorConfig,
        *,
        seed: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._chain, self._architecture, self._config = chain, architecture, config
        warn_of_idle_links(chain)
        self._uncompressed_chain = (
            CompressorChain(fidelity_observations=0).add(Fusion()).add(ONNX())
        )
        self._context = Context(seed=seed, clock=clock)
        self._uncompressed_context = Context(seed=seed, clock=clock)
        self._clock = clock
        self._observed = 0
        self._published_at: deque[float] = deque(maxlen=_INTERVALS + 1)
        self._failures = 0
        self._failures_told: set[tuple[str, ...]] = set()
        self._seconds = 0.0
        self._uncompressed_made_of: Policy | None = None
        self._uncompressed: Artifact | None = None
        self._fidelity: Fidelity | None = None
        self.artifact: Artifact | None = None
        self.errors: Counter[str] = Counter()
        self.made = 0
        self.uncompressed = 0
        self.known = PolicyVersion()
        self.meter = WaitMeter()

    def observe(self, observations: NDArray[Any]) -> None:
        """Keep the newest visited observations.

        The same share of each batch is held out for comparisons, so that both parts are equally
        recent.
        """
        for_links, to_compare = self._config.observations, self._config.fidelity_observations
        numbers = self._observed + np.arange(len(observations))
        held_out = numbers * to_compare % (for_links + to_compare) >= for_links
        self._observed += len(observations)
        context = self._context
        context.observations = _newest(context.observations, observations[~held_out], for_links)
        context.held_out = _newest(context.held_out, observations[held_out], to_compare)

    def compress(self, at: PolicyVersion, tensors: Mapping[str, NDArray[np.float32]]) -> None:
        """Make the artifact of a new version; if a link fails, the previous one stays.

        `known` then stays too, so that these weights, or newer ones, are tried again. The
        uncompressed policy is published where the chain lacks observations, where the artifact
        exceeds `compressor.max_kl` or was not compared, and where a link fails before the first
        artifact or several times in a row.
        """
        policy = Policy.of(self._architecture, tensors, at)
        before, self.known = self.known, at
        started = time.perf_counter()
        try:
            artifact = self._chain.compress(policy, self._context)
        except NeedsObservations:
            self._publish_uncompressed(policy)
            return
        except Exception as error:
            if self._context.original is not policy:
                # invalid weights: no chain can compress them
                self._report(error)
                return
            # a link may be the user's code: the run continues after any error
            self._tell_where(error, at)
            self._failures += 1
            self._report(error)
            if self.artifact is None or self._failures >= _MOST_FAILURES:
                self._publish_uncompressed(policy)
            else:
                self.known = before
            return
        finally:
            self._seconds = time.perf_counter() - started
        self._failures = 0
        measured = artifact.fidelity.observations > 0
        self._fidelity = artifact.fidelity if measured else None
        most = self._config.max_kl
        # not as `kl > most`: an artifact without a measured KL, or with NaN, must not pass
        if most is None or (measured and artifact.fidelity.kl_mean <= most):
            self._publish(artifact)
            self.made += 1
            return
        if measured:
            self.errors["unfaithful"] += 1
        self._publish_uncompressed(policy)

    def newer_than(self, known: PolicyVersion, *, uncompressed: bool = False) -> Artifact | None:
        """The newest artifact if its version is newer than `known`.

        Args:
            known: the requester's version.
            uncompressed: whether the uncompressed policy is requested.
        """
        artifact, entered = self.artifact, self._context.original
        if uncompressed and entered is not None:
            artifact = self._uncompressed_of(entered)
        return artifact if artifact is not None and artifact.at > known else None

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

        The distances are those of the chain's last artifact, published or not; they are missing
        where it was not compared.
        """
        artifact, fidelity = self.artifact, self._fidelity
        if artifact is None:
            return {}
        distances = ("kl_mean", "kl_variance", "kl_max", "agreement")
        near = distances if fidelity is not None else ()
        return {
            **{name: getattr(fidelity, name) for name in near},
            "artifact_bytes": float(artifact.bytes),
            "artifact_version": float(artifact.at.version),
            "compress_ms": 1000 * self._seconds,
            "compressed": float(artifact.chain == self._chain.id),
            **self._interval_metrics(),
            **self._link_gauges(),
            **{f"latency_ms_{size}": ms for size, ms in artifact.latency_ms.items()},
        }

    def heartbeat_fields(self) -> dict[str, Any]:
        """Counters and gauges of the same moment."""
        gauges = self.gauges()  # first: it counts its own errors
        counters = self.counters()
        shown = ("artifacts", "errors", "uncompressed_artifacts")
        return {"counters": counters, "gauges": gauges | {n: float(counters[n]) for n in shown}}

    def _tell_where(self, error: Exception, at: PolicyVersion) -> None:
        """Log the traceback of the first failure of a kind.

        Every version may fail and no log is rotated; `_report` logs a line for each failure.
        """
        kind = _kind_of(error)
        if kind not in self._failures_told:
            self._failures_told.add(kind)
            _LOGGER.error(
                "event=link_failed chain=%s version=%s", self._chain.id, at, exc_info=error
            )

    def _report(self, error: Exception) -> None:
        kind = type(error).__name__
        self.errors[kind] += 1
        _LOGGER.error(
            "event=not_compressed failures=%d error=%s reason=%r", self._failures, kind, str(error)
        )

    def _publish(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self._published_at.append(self._clock())

    def _publish_uncompressed(self, policy: Policy) -> None:
        uncompressed = self._uncompressed_of(policy)
        if uncompressed is not None:
            self._publish(uncompressed)
            self.uncompressed += 1

    def _uncompressed_of(self, policy: Policy) -> Artifact | None:
        """The uncompressed policy as an artifact; None where its parameters are not finite."""
        if self._uncompressed_made_of is not policy:
            self._uncompressed_made_of, self._uncompressed = policy, None
            try:
                self._uncompressed = self._uncompressed_chain.compress(
                    policy, self._uncompressed_context
                )
            except RefusedTensors as error:
                self._report(error)
        return self._uncompressed

    def _interval_metrics(self) -> dict[str, float]:
        """Mean seconds between the newest artifacts; nothing before the second."""
        times = self._published_at
        if len(times) < 2:
            return {}
        return {"artifact_interval_s": (times[-1] - times[0]) / (len(times) - 1)}

    def _link_gauges(self) -> dict[str, float]:
        """The links' gauges, limited to valid heartbeat values; empty where a link fails."""
        try:
            said = {name: float(x) for name, x in self._chain.gauges(self._context).items()}
        except Exception as error:
            # a link may be the user's code; logged once, since heartbeats come several times a
            # second
            if not self.errors["gauges"]:
                _LOGGER.exception("event=no_gauges chain=%s reason=%r", self._chain.id, str(error))
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


def _newest(known: NDArray[Any] | None, more: NDArray[Any], most: int) -> NDArray[Any]:
    joined = more if known is None else np.concatenate([known, more])
    return joined[max(0, len(joined) - most) :]
