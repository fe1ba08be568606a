"""The contract of a batch source, and the base of sources that wrap another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aclearn.learning.batch import Batch
from aclearn.learning.gradient_worker import GradientWorker
from aclearn.policies.cuda_stream import CudaStream


class BatchSource(Protocol):
    """Where a trainer's batches come from: actors, environments of its own, a memory of either.

    The new steps of a batch are in flight in the account when `next` returns it. What a subclass
    does not override does nothing.

    Attributes:
        plays: whether `next` steps environments: one thread calls it, for a whole batch at a time.
        draws: whether batches are drawn from a memory, whose steps stay there until then.
        threads: CPU threads of a worker of its batches.
        stream: in which its batches are made and must be learned, all of one shape; None: any.
    """

    plays: bool = False
    draws: bool = False
    threads: int = 1
    stream: CudaStream | None = None

    def next(self, timeout_s: float, worker: GradientWorker) -> Batch | None:
        """The next batch; None if there is none within `timeout_s`, or the worker's check stops it.

        Args:
            worker: of the calling thread, which assembles the batch.

        Raises:
            EnvironmentFailure: a reward or an observation is out of range.
        """
        ...

    def of_new_steps(self, timeout_s: float, worker: GradientWorker) -> Iterator[Batch] | None:
        """The batches that follow from one batch of new steps; None as of `next`.

        Several policies learn in rounds of it: each has as many batches of new steps.
        """
        batch = self.next(timeout_s, worker)
        return None if batch is None else iter((batch,))

    def learned(self, batch: Batch, errors: Tensor | None = None) -> None:
        """Told when the updates of a batch are made.

        Args:
            errors: `[T, B]`, size of each step's error, of an algorithm that gives them.
        """
        return

    def take_episodes(self) -> dict[str, Any]:
        """Fields of a heartbeat about the episodes since the last call."""
        return {}

    def heartbeat_fields(self) -> dict[str, dict[str, Any]]:
        """More counters and gauges of a heartbeat, by field."""
        return {}

    def state(self) -> dict[str, NDArray[Any]]:
        """Tensors of a checkpoint, by name; called between batches.

        Raises:
            TimeoutError: a worker hangs in the source.
        """
        return {}

    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a checkpoint's tensors, of any source; what does not fit is left out."""
        return

    def close(self) -> None:
        """Give no batch any more; steps that wait count as dropped. `state` still works."""
        return


class SourceAround(BatchSource):
    """A source that takes batches of another one; override what differs."""

    def __init__(self, inner: BatchSource) -> None:
        self.inner = inner
        self.plays, self.threads, self.stream = inner.plays, inner.threads, inner.stream

    @override
    def learned(self, batch: Batch, errors: Tensor | None = None) -> None:
        self.inner.learned(batch)

    @override
    def take_episodes(self) -> dict[str, Any]:
        return self.inner.take_episodes()

    @override
    def heartbeat_fields(self) -> dict[str, dict[str, Any]]:
        return self.inner.heartbeat_fields()

    @override
    def state(self) -> dict[str, NDArray[Any]]:
        return self.inner.state()

    @override
    def restore(self, saved: Mapping[str, NDArray[Any]]) -> None:
        self.inner.restore(saved)

    @override
    def close(self) -> None:
        self.inner.close()
