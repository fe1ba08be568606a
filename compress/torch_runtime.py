"""The torch runtime: for GPUs, and for CPUs whose bf16 beats ONNX Runtime's fp32."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aclearn.policies import Architecture
from aclearn.policies.network import PolicyNetwork, load_tensors
from compress.runtime import Tensors, check_tensors


class TorchPolicy:
    """A policy in torch: channels-last, under bf16 autocast where `amp_dtype` says so.

    Args:
        architecture: what the weights must fit.
        device: where it runs.
        amp_dtype: torch.bfloat16 or torch.float16 for autocast, None for fp32.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        device: str = "cpu",
        amp_dtype: torch.dtype | None = None,
    ) -> None:
        self._architecture = architecture
        self._device = torch.device(device)
        self._amp_dtype = amp_dtype
        self._network: PolicyNetwork | None = None

    def swap(self, tensors: Tensors) -> None:
        """Replace the network by one with these weights, in one reference assignment."""
        check_tensors(self._architecture, tensors)
        network = PolicyNetwork(self._architecture, seed=0)
        load_tensors(network, tensors)
        network.to(self._device)
        if self._architecture.convolutions:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._network = network.eval()

    def logits(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Logits `[N, A]` float32 of observations `[N, *shape]`; needs a `swap` before."""
        if self._network is None:
            raise RuntimeError("no weights yet: call swap first")
        # a copy: torch refuses to promise not to write into the read-only views of a message
        x = torch.from_numpy(np.array(observations)).to(self._device)
        if self._architecture.convolutions:
            x = x.contiguous(memory_format=torch.channels_last)
        with (
            torch.inference_mode(),
            torch.autocast(self._device.type, self._amp_dtype, enabled=self._amp_dtype is not None),
        ):
            logits, _ = self._network(x)
        result: NDArray[np.float32] = logits.float().cpu().numpy()
        return result
