"""Policies executed by captured CUDA graphs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.policies import Architecture
from aclearn.policies.cuda_stream import CudaStream
from aclearn.types import PolicyOutput, State
from compress.errors import RefusedTensors
from compress.graphs.policy_graph import PolicyGraph, Tensors, check_tensors
from compress.runtimes.cuda_graphs import (
    CudaGraphRunner,
    CudaGraphRunnerPool,
    DeviceWeights,
    batch_sizes,
)


@dataclass(frozen=True, eq=False)
class CudaGraphExecutable:
    """One version of a policy: its weights, and the runners of all versions."""

    runners: CudaGraphRunnerPool
    weights: DeviceWeights

    def step(
        self, observations: Mapping[str, NDArray[Any]], state: State = ()
    ) -> PolicyOutput[NDArray[np.float32]]:
        """The policy's output for observations, leaf → `[B, *shape]`, and state `[B, n]` each."""
        with self.runners.borrow() as runner:
            parameters, *after = runner.step(self.weights, observations, state)
        return PolicyOutput(parameters, state=tuple(after))


class CudaGraphRuntime:
    """Makes executables on a GPU: all versions share runners, so that steps are captured once.

    An executable is one version's weights on the device. A thread that computes borrows a runner.
    The runner copies the weights into its own parameters, once per version, and replays the
    captured step of the batch size. An executable thus stays valid when the next version comes.

    Args:
        max_batch: largest batch that is captured.
    """

    def __init__(
        self,
        architecture: Architecture,
        make_stream: Callable[[], CudaStream],
        *,
        device: torch.device,
        max_batch: int,
        amp_dtype: torch.dtype | None = None,
    ) -> None:
        self._graph, self.device = PolicyGraph(architecture), device
        sizes, uncapturable = batch_sizes(max_batch), threading.Event()
        self._runners = CudaGraphRunnerPool(
            lambda: CudaGraphRunner(
                self._graph,
                make_stream(),
                sizes=sizes,
                uncapturable=uncapturable,
                amp_dtype=amp_dtype,
            )
        )

    def load(self, tensors: Tensors) -> CudaGraphExecutable:
        """See `PolicyRuntime.load`."""
        check_tensors(self._graph, tensors, with_value=True)
        # `to` waits, so that runners may read in their own streams. Of a copy: torch warns of the
        # read-only views of a message.
        weights = tuple(
            torch.from_numpy(np.array(tensors[name])).to(self.device)
            for name in self._graph.tensors()
        )
        return CudaGraphExecutable(self._runners, weights)

    def load_on_device(self, tensors: Mapping[str, Tensor]) -> CudaGraphExecutable:
        """Load weights that lie on the device, complete, and are never written again.

        Args:
            tensors: float32 of the architecture's shapes, by name; those of the value are left.

        Raises:
            RefusedTensors: they are not finite.
        """
        weights = {name: tensors[name] for name in self._graph.tensors()}
        finite = torch.stack([torch.isfinite(weight).all() for weight in weights.values()])
        if not bool(finite.all()):  # waits for the device
            bad = [name for name, fine in zip(weights, finite.tolist(), strict=True) if not fine]
            raise RefusedTensors(f"tensors: not finite: {', '.join(bad)}")
        return CudaGraphExecutable(self._runners, tuple(weights.values()))
