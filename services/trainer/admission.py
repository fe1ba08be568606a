"""Admission of unrolls: count their steps, admit or drop them."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from aclearn.errors import WireError
from aclearn.learning import StepLedger, check_unroll, largest_unroll_bytes
from aclearn.types import PolicyVersion, Unroll, UnrollSpec

#: Most bytes of an actor's id and of a drop reason, and most reasons of one actor: one heartbeat
#: has the whole account. An id has 32 bytes.
_MOST_ID_BYTES, _MOST_REASON_BYTES, _MOST_REASONS = 48, 64, 64


#: Reason of the steps of unrolls that do not fit the run.
BAD_UNROLL = "bad_unroll"


class UnrollAdmission:
    """The trainer's account of unrolls, shared by the socket thread and the learner's.

    Args:
        ledger: the account; accessed only here, under a lock.
        spec: shapes of the run's unrolls.
        max_lag_versions: older unrolls are dropped.
        max_env_steps: agent steps in the account after which unrolls are dropped; None: no bound.
        ahead: unrolls of an actor that may be in flight or being filled.

    Attributes:
        reached: the bound that the run has reached, `max_updates` or `max_env_steps`: the reason
            for later drops; None before.
        last: whether `ahead` more unrolls of each actor reach `max_env_steps`.
    """

    def __init__(
        self,
        ledger: StepLedger,
        *,
        spec: UnrollSpec,
        max_lag_versions: int,
        max_env_steps: int | None = None,
        ahead: int = 2,
    ) -> None:
        self._ledger, self._lock = ledger, threading.Lock()
        self._spec, self._max_lag = spec, max_lag_versions
        self._max_env_steps = math.inf if max_env_steps is None else max_env_steps
        self._ahead = ahead
        self.reached: str | None = None
        self.last = False
        self._look_at_bound()

    @property
    def most_bytes(self) -> int:
        """Bytes of the arrays of the largest unroll."""
        return largest_unroll_bytes(self._spec)

    def check(self, unroll: Unroll, incarnation: str) -> None:
        """Raise `WireError` unless the unroll fits the run; nothing is counted."""
        if (fault := _fault_of_names(incarnation, unroll)) is not None:
            raise WireError(BAD_UNROLL, fault)
        check_unroll(unroll, self._spec)

    def refuse(self, incarnation: str, sequence: int, unroll: Unroll) -> None:
        """Count the steps of an unroll that `check` refused as dropped, if its counts add up."""
        if _fault_of_names(incarnation, unroll) is None:
            with self._lock:
                self._enter(incarnation, sequence, unroll, BAD_UNROLL)

    def admit(
        self, incarnation: str, sequence: int, unroll: Unroll, newest: PolicyVersion
    ) -> str | None:
        """Count an unroll's steps: None if they are in flight now, else why not.

        A bound's name, "old_generation" or "lag" means counted as dropped; any other, not counted.
        """
        with self._lock:
            reason = self.reached or self._too_old(unroll, newest)
            refusal = self._enter(incarnation, sequence, unroll, reason)
            self._look_ahead(unroll.env_steps_after - unroll.env_steps_before)
            return refusal

    def produced(self, incarnation: str, sequence: int, env_steps: int, steps: int) -> None:
        """Put steps in flight that this process itself produced.

        Args:
            incarnation: of this process.
            sequence: number of the batch, growing.
            env_steps: of this process before them.
            steps: their number.
        """
        with self._lock:
            refusal = self._ledger.admit(
                incarnation, sequence, env_steps, env_steps + steps, {}, steps
            )
            assert refusal is None, refusal
            self._look_at_bound()

    def close_all(self) -> None:
        """Close every incarnation of before: its steps after the checkpoint do not exist."""
        with self._lock:
            for incarnation in list(self._ledger.opened):
                self._ledger.close(incarnation)

    def learned(self, steps: int) -> None:
        """Count steps that entered an update."""
        with self._lock:
            self._ledger.learned(steps)

    def dropped(self, reason: str, steps: int) -> None:
        """Count steps that will not be learned."""
        with self._lock:
            self._ledger.dropped(reason, steps)

    def counters(self) -> tuple[dict[str, int], dict[str, int]]:
        """The counters of a heartbeat and the dropped steps by reason, at the same moment."""
        with self._lock:
            self._ledger.check()
            return self._ledger.heartbeat_counters(), dict(self._ledger.dropped_steps)

    def state(self) -> Mapping[str, Any]:
        """For a checkpoint."""
        with self._lock:
            return self._ledger.state()

    @property
    def learned_steps(self) -> int:
        """Agent steps that entered an update."""
        with self._lock:
            return self._ledger.learned_steps

    def _enter(
        self, incarnation: str, sequence: int, unroll: Unroll, reason: str | None
    ) -> str | None:
        """Put an unroll's steps in flight, or drop them for `reason`; returns why, or a refusal."""
        steps = int(np.count_nonzero(unroll.valid))
        refusal = self._ledger.admit(
            incarnation,
            sequence,
            unroll.env_steps_before,
            unroll.env_steps_after,
            unroll.dropped,
            steps,
        )
        if refusal is not None:
            return refusal
        if reason is not None:
            self._ledger.dropped(reason, steps)
        self._look_at_bound()
        return reason

    def _look_at_bound(self) -> None:
        if self.reached is None and self._ledger.env_steps >= self._max_env_steps:
            self.reached = "max_env_steps"

    def _look_ahead(self, unroll_steps: int) -> None:
        more = self._ahead * len(self._ledger.opened) * unroll_steps
        self.last = self._ledger.env_steps + more >= self._max_env_steps

    def _too_old(self, unroll: Unroll, newest: PolicyVersion) -> str | None:
        if unroll.generation != newest.generation:
            return "old_generation"
        oldest = int(unroll.versions.min())
        return "lag" if newest.version - oldest > self._max_lag else None


def _fault_of_names(incarnation: str, unroll: Unroll) -> str | None:
    """Why the account cannot name an unroll's sender or reasons; None if it can."""
    if len(incarnation.encode()) > _MOST_ID_BYTES:
        return f"incarnation: expected at most {_MOST_ID_BYTES} bytes"
    long = any(len(reason.encode()) > _MOST_REASON_BYTES for reason in unroll.dropped)
    if long or len(unroll.dropped) > _MOST_REASONS:
        return f"dropped: expected at most {_MOST_REASONS} reasons of {_MOST_REASON_BYTES} bytes"
    return None
