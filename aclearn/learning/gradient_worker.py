"""A worker of the trainer: the gradient of one batch on a copy of the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from aclearn.learning.batch import Batch, assemble_batch
from aclearn.learning.networks import Networks
from aclearn.learning.ranks import ALONE, Group
from aclearn.learning.staging import HOST, PinnedStaging, Staging
from aclearn.learning.stop_check import BatchStopped
from aclearn.learning.surrogate import Objective
from aclearn.learning.update_report import Sums
from aclearn.learning.vectors import parts_of
from aclearn.policies import Architecture
from aclearn.policies.cuda_stream import CudaStream
from aclearn.policies.policy_module import zeroed_state
from aclearn.telemetry import part
from aclearn.types import ObservationSpec, Unroll

#: Samples that are differentiated at a time, of images. Larger chunks exceed the cache, smaller
#: ones pay the framework's overhead per call.
CHUNK_SAMPLES = 320


class GradientWorker:
    """Differentiates batches on its own copy of the weights; one thread at a time.

    On a GPU, batches and gradients are computed in the worker's own stream, and the weights are
    copied in the current stream of the thread. A worker that raised must not be used again: its
    kernels may still be running.

    Args:
        objective: what it differentiates.
        device: where it computes.
        rng: random numbers of the losses, on the device.
        chunk_samples: samples that are differentiated at a time on a CPU; None: `CHUNK_SAMPLES`.
        group: the ranks with which a correction is frozen.
        captured: the stream of a thread whose batches have one shape; the worker computes in it,
            waits for nothing, and all updates of a batch are one CUDA graph.

    Attributes:
        networks: the copy, with the gradients of the last batch.
        gradient: these gradients as a vector for each of the optimiser's groups.
        targets: those whose weights follow slowly, without gradient; `networks` where none do.
        check: called before each chunk, but for a graph; an exception of it ends the work.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        objective: Objective,
        device: torch.device,
        rng: torch.Generator,
        chunk_samples: int | None = None,
        captured: CudaStream | None = None,
        group: Group = ALONE,
        **options: Any,
    ) -> None:
        self._objective, self._device, self.captured = objective, device, captured
        self._group = group
        self._chunk_samples, self._rng = chunk_samples or CHUNK_SAMPLES, rng
        options = {"device": device, "scalars": tuple(objective.scalars), **options}
        self.networks = Networks(architecture, **options)
        self.targets = self.networks
        if objective.targets is not None:
            self.targets = Networks(architecture, **options)
        named = dict(self.networks.network.named_parameters()) | self.networks.scalars
        self.gradient: list[Tensor] = []
        for each in objective.optimiser_groups(named):
            weights = each["params"]
            self.gradient.append(torch.zeros(sum(map(Tensor.numel, weights)), device=device))
            for weight, its in zip(weights, parts_of(self.gradient[-1], weights), strict=True):
                weight.grad = its  # `backward` adds to it
        self._stream: torch.cuda.Stream | None = None
        self._staging: Staging = HOST
        if device.type == "cuda" and captured is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._staging = PinnedStaging(device)
            mine = (*self.networks.parameters, *self.targets.parameters, *self.gradient)
            for tensor in mine:
                # The memory of a discarded worker must not be reused before its stream has ended.
                tensor.record_stream(self._stream)
        self.check: Callable[[], None] = lambda: None

    @property
    def stopped(self) -> bool:
        """Whether `check` ends the work."""
        try:
            self.check()
        except BatchStopped:
            return True
        return False

    def watch(self, check: Callable[[], None]) -> None:
        """Set `check`, in every thread."""
        self.check = check

    def refresh(
        self,
        weights: list[Tensor],
        *,
        targets: list[Tensor] | None = None,
        advantage_scale: float | Tensor = 1.0,
        objective: Objective | None = None,
    ) -> None:
        """Copy `weights`, in the order of `Networks.parameters`; no thread may write them now.

        Args:
            targets: those of `targets`, where it has copies.
            advantage_scale: factor of the advantages in the policy loss.
            objective: what it differentiates from now on; None: as before.
        """
        self._objective = objective or self._objective
        # In the stream of `weights`, before their next update. `differentiate` has waited for all
        # readers of the copy.
        self.networks.copy(weights)
        if targets is not None:
            self.targets.copy(targets)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        for networks in (self.networks, self.targets):
            networks.advantage_scale = advantage_scale

    def assemble(self, unrolls: Sequence[Unroll], observation: ObservationSpec) -> Batch:
        """`assemble_batch` on this worker's device; a GPU copy may still be in progress."""
        with self.on_stream():
            batch = assemble_batch(unrolls, observation=observation, staging=self._staging)
        if self._stream is not None:  # the caller counts valid steps in its own stream
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return batch

    def begin_after(self, batch: Batch, steps: int) -> Batch:
        """`batch` without its first steps, after which it begins with the state of `networks`."""
        with self.on_stream(), part("forward"), torch.no_grad():
            states = []
            for chunk in self._cut(batch):
                seen = {name: leaf[:steps] for name, leaf in chunk.observations.items()}
                output = self.networks.unroll(seen, chunk.state, chunk.starts[:steps])
                states.append(zeroed_state(output.state, chunk.starts[steps]))
            state = tuple(torch.cat(each) for each in zip(*states, strict=True))
            self._wait()  # the next `refresh` overwrites the weights
        return batch.after(steps, state)

    def freeze(self, batch: Batch) -> Batch:
        """`batch` with a correction by `targets`, which all its updates use."""
        with self.on_stream(), part("forward"):
            chunks = list(self._cut(batch))
            frozen = self._objective.frozen(batch, chunks, self.targets, self._group)
            self._wait()  # the next `refresh` overwrites the weights
        return frozen

    def measure(self, batch: Batch) -> Batch:
        """`batch` with `measured`, where a corrector looks at all steps of an update together.

        It takes a forward pass more, unless one worker differentiates all these steps at a time:
        then their correction measures them itself. That of a frozen batch has done so.
        """
        if batch.frozen is not None or not self._objective.measures:
            return batch
        if self._group.size == 1 and self._at_once(batch):
            return batch
        with self.on_stream(), part("forward"):
            return self._objective.measured(batch, self.log_probs(batch), self._group)

    @torch.no_grad()
    def log_probs(self, batch: Batch) -> Tensor:
        """`[T, B]`, log π(a) of the actions taken, in the current stream."""
        parts = [self._objective.log_probs(each, self.networks) for each in self._cut(batch)]
        return torch.cat(parts, dim=1)

    def differentiate(self, batch: Batch, steps: Tensor | int) -> Sums:
        """Leave the gradient of the batch's summed losses, divided by `steps`, in the networks.

        Args:
            batch: one of `assemble`, or made in the current stream before the last `refresh`.
            steps: number of steps of the update, of which `batch` may be a part.
        """
        with self.on_stream():
            for vector in self.gradient:
                vector.zero_()
            parts = [self._differentiate_chunk(chunk, steps) for chunk in self._cut(batch)]
            sums = Sums.joined(parts)
            with part("device"):
                # Afterwards other streams may read the gradients and overwrite batch and weights.
                # On a GPU this includes forward and backward.
                self._wait()
        return sums

    def gradients(self) -> list[Tensor | None]:
        """The gradients of the last batch in the order of the parameters."""
        return [parameter.grad for parameter in self.networks.parameters]

    def close(self) -> None:
        """End its threads."""

    def on_stream(self) -> contextlib.AbstractContextManager[object]:
        """Work of this thread in the stream of its batches."""
        return torch.cuda.stream(self._stream) if self._stream else contextlib.nullcontext()

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()

    def _cut(self, batch: Batch) -> Iterator[Batch]:
        """The batch in chunks on a CPU, whole on a GPU."""
        for chunk in batch.cut(self._parts(batch)):
            if self.stopped and self._group.size == 1:  # ranks stop together, between updates
                raise BatchStopped
            yield chunk

    def _parts(self, batch: Batch) -> int:
        """The number of chunks, at most."""
        samples = batch.actions.shape[0] * batch.width
        return -(-samples // self._chunk_samples) if self._device.type == "cpu" else 1

    def _at_once(self, batch: Batch) -> bool:
        """Whether all steps of the batch are differentiated at a time."""
        return self._parts(batch) == 1

    def _differentiate_chunk(self, chunk: Batch, steps: Tensor | int) -> Sums:
        with part("forward"):
            total, sums = self._objective.losses(chunk, self.networks, self.targets, self._rng)
            mean = total / steps
        with part("backward"):
            mean.backward()  # type: ignore[no-untyped-call]
        return sums
