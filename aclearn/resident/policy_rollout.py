"""Rollouts of a policy: inside the kernel on a GPU, in torch between steps on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from typing_extensions import override

from aclearn.distributions import torch_distribution_of
from aclearn.distributions.torch_categorical import epsilon_greedy
from aclearn.policies import Architecture
from aclearn.policies.architecture import POLICY
from aclearn.policies.cuda_stream import CudaStream
from aclearn.resident import kernels
from aclearn.resident.acting_network import ActingNetwork
from aclearn.resident.network import (
    WIDEST,
    fits_in_kernel,
    network_chooser,
    weight_names,
)
from aclearn.resident.noise import OrnsteinUhlenbeckNoise
from aclearn.resident.resident import Resident
from aclearn.resident.shared_columns import SharedFirstLayer
from aclearn.resident.slices import Slice
from aclearn.resident.torch_rollout import TorchRollout
from aclearn.resident.warp_setup import wp


class PolicyRollout(TorchRollout):
    """Fills the buffers with steps of a policy, T at a time.

    The rollout reads its own copy of the weights, which `refresh` writes.

    Args:
        architecture: of the policy; only what the actions depend on is computed.
        in_kernel: compute the policy in the kernel; None: on a GPU, if it is small enough.
        dtype: that the copy's weights are rounded to; they stay in float32.
        noise: added to the modes of a deterministic policy; None: actions are sampled.
        epsilon: `[N]`, of ε-greedy exploration by a policy of action values, which the caller
            writes; None: actions are sampled.
        stream: the current one, on a GPU: torch's steps become one CUDA graph.

    Attributes:
        state: `[N, n]` of each part of the policy's state, before the next step; a kernel has none.
        first_state: the same before the first recorded step.

    Raises:
        ValueError: `in_kernel`, and the policy does not fit (`fits_in_kernel`).
    """

    def __init__(
        self,
        envs: Resident,
        architecture: Architecture,
        *,
        in_kernel: bool | None = None,
        dtype: torch.dtype = torch.float32,
        noise: OrnsteinUhlenbeckNoise | None = None,
        epsilon: Tensor | None = None,
        stream: CudaStream | None = None,
    ) -> None:
        (rows,) = envs.kinds
        count = envs.num_envs * rows.agents
        self._distribution = torch_distribution_of(rows.spec.action).kind
        self._dtype, self._epsilon = dtype, epsilon
        if noise is not None or epsilon is not None:
            in_kernel = False
        if in_kernel is None:
            # its network knows no masks
            masked = rows.buffers.masks is not None
            on_gpu = envs.device.type == "cuda"
            in_kernel = on_gpu and not masked and fits_in_kernel(architecture)
        if in_kernel and not fits_in_kernel(architecture):
            raise ValueError(
                f"in_kernel: expected a chain of dense layers of at most {WIDEST} units and no "
                f"memory, got the policy {architecture.name!r}; leave in_kernel out, and torch "
                "computes it"
            )
        acting = [] if in_kernel else [ActingNetwork(architecture, count, envs.device, dtype)]
        others = [] if noise is None else [noise.noise]
        super().__init__(envs, acting, others=others, stream=stream)
        self.state = [part for each in acting for part in each.state]
        self.first_state = [part for each in acting for part in each.first_state]
        self._names = weight_names(architecture)
        self._flat: Tensor | None = None
        if in_kernel:
            shapes = architecture.tensor_shapes()
            size = sum(torch.Size(shapes[name]).numel() for name in self._names)
            self._flat = torch.zeros(size, device=envs.device)
            chooser = network_chooser(rows, architecture)
            source = chooser.source()
            source.weights = wp.from_torch(self._flat)
        else:
            self._network = acting[0].network
            self._shared = SharedFirstLayer.of(self._network, envs)
            width = architecture.parameter_count
            self._parameters = torch.zeros(count, width, device=envs.device)
            if noise is not None:
                chooser, source = noise.chooser(self._parameters)
            else:
                chooser = kernels.parameters_chooser(rows.observation_type, rows.sampler)
                source = chooser.source()
                source.parameters = wp.from_torch(self._parameters, dtype=rows.sampler.parameters)
        self._rollout = envs.rollout([(chooser, source)])

    @torch.no_grad()
    def refresh(self, weights: Mapping[str, Tensor]) -> None:
        """Copy these weights, by name; others than the policy's are ignored."""
        if self._flat is not None:
            flat = torch.cat([weights[name].reshape(-1) for name in self._names])
            self._flat.copy_(flat.to(self._dtype))
            return
        self._acting[0].refresh(weights)
        if self._shared is not None:
            self._shared.refresh()

    @override
    def run(self, check: Callable[[], None] = lambda: None) -> None:
        if self._flat is None:
            super().run(check)
        else:
            self._rollout.run(self._steps)

    @override
    @torch.inference_mode()
    def _run_slice(self, check: Callable[[], None], part: Slice) -> None:
        buffers, network = self._envs.buffers, self._network
        seen, parameters = buffers.observations, self._parameters
        A = self._envs.agents
        rows = slice(A * part.first, A * (part.first + part.size))
        state = [each[rows] for each in self.state]
        for t in range(len(seen) - 1):
            check()
            if self._shared is None:
                outputs = network.outputs(seen[t, rows], state=tuple(state))
            else:
                outputs = self._shared.outputs(seen[t, rows], rows, tuple(state))
            given = outputs[POLICY]
            if buffers.masks is not None:
                given = self._distribution.mask(given, buffers.masks[t, rows])
            if self._epsilon is not None:
                given = epsilon_greedy(given, self._epsilon[rows])
            parameters[rows] = given
            self._rollout.run_slice(part, 1, row=t, ahead=t)
            for now, each in zip(state, network.states, strict=True):
                begins = ~buffers.valid[t, rows].unsqueeze(1)
                now.copy_(outputs[each.next].masked_fill(begins, 0.0))
