"""Policies and artifacts executed by captured CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.policies import Architecture
from compress.errors import RefusedTensors
from compress.graphs.policy_graph import PolicyGraph, Tensors, check_tensors
from compress.runtimes.cuda_graphs import (
    Captures,
    CudaGraphRunner,
    CudaGraphRunnerPool,
    DeviceWeights,
    Place,
    batch_sizes,
)


@dataclass(frozen=True, eq=False)
class CudaGraphExecutable:
    """One version of a policy: its weights, and the lanes of all versions."""

    lanes: CudaGraphRunnerPool
    weights: DeviceWeights

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`; in any thread."""
        with self.lanes.borrow() as lane:
            return lane.logits(self.weights, observations)


class CudaGraphPolicy:
    """A policy on a GPU: versions share lanes, so that steps are captured once and for all.

    A version is its weights on the device. Whoever computes with it borrows a lane, which copies
    them into its own (from device to device, once a version) and repeats the captured step of the
    batch size. An executable thus stays what it was when the next version comes.

    Args:
        architecture: what the weights must fit, those of the value included; captured steps are
            of its shapes for ever, another one needs another policy.
        make_place: makes the place of a lane.
        device: of all places.
        max_batch: largest batch that is captured.
        amp_dtype: torch.bfloat16 or torch.float16 for autocast, None for fp32.
    """

    def __init__(
        self,
        architecture: Architecture,
        make_place: Callable[[], Place],
        *,
        device: torch.device,
        max_batch: int,
        amp_dtype: torch.dtype | None = None,
    ) -> None:
        self._graph, self._device = PolicyGraph(architecture), device
        sizes, captures = batch_sizes(max_batch), Captures()
        self._lanes = CudaGraphRunnerPool(
            lambda: CudaGraphRunner(
                self._graph, make_place(), sizes=sizes, captures=captures, amp_dtype=amp_dtype
            )
        )
        self._executable: CudaGraphExecutable | None = None

    def swap(self, tensors: Tensors) -> None:
        """Run these weights from the next call on, in one reference assignment.

        Raises:
            RefusedTensors: they do not fit or are not finite; the old ones go on.
        """
        check_tensors(self._graph, tensors, with_value=True)
        # Each copy is waited for, so that lanes may read in streams of their own. From a copy:
        # torch refuses to promise not to write into the read-only views of a message.
        weights = tuple(
            torch.from_numpy(np.array(tensors[name])).to(self._device)
            for name in self._graph.tensors()
        )
        self._executable = CudaGraphExecutable(self._lanes, weights)

    def swap_on_device(self, tensors: Mapping[str, Tensor]) -> None:
        """The same with weights that lie on the device, complete, and are never written again.

        Args:
            tensors: float32 of the architecture's shapes, by name; those of the value are left.

        Raises:
            RefusedTensors: they are not finite; the old ones go on.
        """
        weights = {name: tensors[name] for name in self._graph.tensors()}
        finite = torch.stack([torch.isfinite(weight).all() for weight in weights.values()])
        if not bool(finite.all()):  # waits for the device
            bad = [name for name, fine in zip(weights, finite.tolist(), strict=True) if not fine]
            raise RefusedTensors(f"tensors: not finite: {', '.join(bad)}")
        self._executable = CudaGraphExecutable(self._lanes, tuple(weights.values()))

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self._device

    @property
    def executable(self) -> CudaGraphExecutable:
        """The weights of the last swap; needs a `swap` before."""
        if self._executable is None:
            raise RuntimeError("no weights yet: call swap first")
        return self._executable

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`; needs a `swap` before."""
        return self.executable.logits(observations)
