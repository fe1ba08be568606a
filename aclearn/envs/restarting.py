"""Environments that are closed and made again when they fail."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from aclearn.envs.contract import ContractError
from aclearn.envs.deadline import StepDeadline, StepHungError, environment_faults
from aclearn.envs.torch_defaults import ENVIRONMENTS
from aclearn.errors import EnvironmentFailure, trace_of, words_of
from aclearn.extensions import users_line

_LOGGER = logging.getLogger(__name__)
#: Some environments take 31 bits; a vector environment adds the number of each of its own.
_SEEDS = 2**31 - 2**16
#: Time for which a fault counts towards `max_faults`: a broken environment fails more often, and
#: one fault a day must not end a run of a week.
_FAULTS_COUNT_FOR_S = 3600.0


class RestartingEnvs:
    """Environments of one kind; one that fails is replaced, until it fails too often.

    An environment that is made again gets a seed drawn from (seed, its index, number of the fault),
    so that it need not repeat the fault and a run stays a function of its seed.

    Args:
        max_faults: within an hour, or in a row in one environment.

    Attributes:
        deadline: limits every call of the environments' code.
        faults: reason → number of failures.
        fault_details: reason → what the first of them was.
        between_attempts: called between any two calls that may each take `step_timeout_s`.

    Raises:
        EnvironmentFailure: one cannot be made.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        *,
        name: str,
        count: int,
        seed: int,
        step_timeout_s: float,
        max_faults: int,
    ) -> None:
        self.name, self.seed = name, seed
        self.envs: list[Any] = []
        self.deadline = StepDeadline(step_timeout_s)
        self.faults: dict[str, int] = {}
        self.fault_details: dict[str, str] = {}
        self.between_attempts: Callable[[], None] = lambda: None
        self._make, self._max_faults = make, max_faults
        self._recent_faults: deque[tuple[float, str]] = deque()
        with ExitStack() as failed:
            failed.callback(self.close)
            for _ in range(count):
                fault = self.fault_of(lambda: self.envs.append(make()))
                if fault is None:
                    continue
                if isinstance(fault, EnvironmentFailure):
                    raise fault
                log_trace(name, fault)
                raise EnvironmentFailure(
                    f"environment {name} cannot be made ({words_of(fault)}){users_line(fault)}"
                ) from fault
            failed.pop_all()

    def fault_of(self, act: Callable[[], object]) -> BaseException | None:
        """Call an environment's code; returns its fault, None if it succeeds in time.

        Raises:
            KeyboardInterrupt: the user's; see `environment_faults`.
        """
        try:
            with ENVIRONMENTS, self.deadline:
                act()
        except BaseException as error:
            self.deadline.disarm()
            if not isinstance(error, environment_faults()):
                raise
            return error
        return None

    def replace(
        self, index: int, error: BaseException, begin: Callable[[int, int], None], *, step: int = 0
    ) -> None:
        """Make an environment again after a fault.

        Args:
            step: number of the step in its episode; 0 for the reset.
            begin: starts the new environment's first episode, for its index and seed; what it
                raises is another fault.

        Raises:
            EnvironmentFailure: there were too many faults; its cause is the last one.
        """
        # earlier faults stay while this environment cannot be made
        self._forget_old_faults()
        fault: BaseException | None = error
        while fault is not None:
            self._count(index, fault, step)
            step = 0
            self.between_attempts()
            self._close_one(index, self.envs[index])
            self.between_attempts()
            fault = self.fault_of(partial(self._make_again, index, begin))
        self.between_attempts()

    def close(self) -> None:
        """Close every environment, also if one is interrupted; errors are logged."""
        envs, self.envs = self.envs, []
        with ExitStack() as closing:
            closing.callback(self.deadline.close)
            for index, env in reversed([*enumerate(envs)]):
                closing.callback(self._close_one, index, env)

    def _make_again(self, index: int, begin: Callable[[int, int], None]) -> None:
        self.envs[index] = self._make()
        seeds = np.random.SeedSequence([self.seed, index, sum(self.faults.values())])
        begin(index, int(seeds.generate_state(1)[0]) % _SEEDS)

    def _forget_old_faults(self) -> None:
        recent, oldest = self._recent_faults, time.monotonic() - _FAULTS_COUNT_FOR_S
        while recent and recent[0][0] < oldest:
            recent.popleft()

    def _count(self, index: int, error: BaseException, step: int) -> None:
        reason, detail = _describe(error)
        is_new = reason not in self.faults
        self.faults[reason] = self.faults.get(reason, 0) + 1
        self.fault_details.setdefault(reason, detail)
        total = sum(self.faults.values())
        recent = self._recent_faults
        recent.append((time.monotonic(), reason))
        is_last = len(recent) > self._max_faults
        if (is_new or is_last) and not isinstance(error, ContractError):
            log_trace(self.name, error)
        _LOGGER.warning(
            "event=environment_fault name=%s env=%d step=%d reason=%s total=%d detail=%r",
            self.name, index, step, reason, total, detail,
        )  # fmt: skip
        if is_last:
            words = Counter(word for _, word in recent)
            counts = ", ".join(f"{word} {n}" for word, n in sorted(words.items()))
            raise EnvironmentFailure(
                f"environment {self.name} failed {len(recent)} times ({counts}) within an hour or "
                f"in a row, actors.max_env_faults allows {self._max_faults}. "
                f"The last fault, in environment {index} of its group at step {step} of its "
                f"episode: {reason}: {detail}"
            ) from error

    def _close_one(self, index: int, env: Any) -> None:
        error = self.fault_of(env.close)
        if error is not None:
            _LOGGER.warning(
                "event=environment_close_failed name=%s env=%d error=%r", self.name, index, error
            )


def log_trace(name: str, error: BaseException) -> None:
    """Log the traceback of an environment's error: messages have only its last line."""
    _LOGGER.info("event=environment_trace name=%s trace=%r", name, trace_of(error))


def _describe(error: BaseException) -> tuple[str, str]:
    """Reason for the counter, and detail for the user."""
    if isinstance(error, ContractError):
        return error.reason, str(error)
    reason = "hung" if isinstance(error, StepHungError) else "raised"
    return reason, f"{words_of(error)}{users_line(error)}"
