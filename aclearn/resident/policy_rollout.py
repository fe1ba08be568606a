"""Rollouts of a policy: inside the kernel on a GPU, in torch between steps on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from aclearn.distributions import torch_distribution_of
from aclearn.distributions.torch_categorical import epsilon_greedy
from aclearn.policies import Architecture
from aclearn.policies.architecture import POLICY
from aclearn.policies.cuda_stream import CudaStream, captured
from aclearn.policies.layer_network import LayerNetwork
from aclearn.resident import kernels
from aclearn.resident.engine import Resident
from aclearn.resident.network import (
    WIDEST,
    fits_in_kernel,
    network_chooser,
    policy_layers,
    weight_names,
)
from aclearn.resident.noise import OrnsteinUhlenbeckNoise
from aclearn.resident.shared_columns import SharedFirstLayer
from aclearn.resident.slices import Slice
from aclearn.resident.warp_setup import wp


class PolicyRollout:
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
        self._envs, self._dtype, self._stream, self._noise = envs, dtype, stream, noise
        (rows,) = envs.kinds
        count = envs.num_envs * rows.agents
        self._distribution = torch_distribution_of(rows.spec.action).kind
        self._replay: Callable[[], object] | None = None
        self.state, self.first_state = (
            [torch.zeros(count, n, device=envs.device) for n in architecture.state]
            for _ in range(2)
        )
        self._epsilon = epsilon
        if noise is not None or epsilon is not None:
            in_kernel = False
        if in_kernel is None:
            in_kernel = envs.device.type == "cuda" and fits_in_kernel(architecture)
        if in_kernel and not fits_in_kernel(architecture):
            raise ValueError(
                f"in_kernel: expected a chain of dense layers of at most {WIDEST} units and no "
                f"memory, got the policy {architecture.name!r}; leave in_kernel out, and torch "
                "computes it"
            )
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
            network = LayerNetwork(policy_layers(architecture), architecture.observation)
            self._network = network.to(envs.device).requires_grad_(False)
            self._weights = dict(self._network.named_parameters())
            normalisers = (layer for layer in network.layers if layer.is_normaliser)
            self._exact = {name for layer in normalisers for name in layer.tensor_names}
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
        for name, tensor in self._weights.items():
            # a rounded mean may be further from the observations than they are from each other
            exact = name in self._exact
            tensor.copy_(weights[name] if exact else weights[name].to(self._dtype))
        if self._shared is not None:
            self._shared.refresh()

    def run(self, check: Callable[[], None] = lambda: None) -> None:
        """T steps of every environment; the first observations are the last ones of before.

        Args:
            check: called before each step on the CPU, in every thread. Where it raises,
                environments, noise and state are as before the call.
        """
        steps = len(self._envs.buffers.rewards)
        if self._flat is not None:
            self._rollout.run(steps)
            return
        if self._stream is None:
            back = self._way_back()
            try:
                self._run_in_torch(check)
            except BaseException:
                back()
                raise
        else:
            if self._replay is None:
                self._replay = self._captured(self._stream)
            self._replay()
        self._envs.advance(steps)

    def _captured(self, stream: CudaStream) -> Callable[[], object]:
        """The steps in torch as one CUDA graph."""
        back = self._way_back()
        replay = captured(stream, self._run_in_torch, what="resident rollout")
        back()  # a capture runs the steps before
        return replay

    def _way_back(self) -> Callable[[], None]:
        """Restores environments, noise and state as they are now, and discards the sums since."""
        envs, saved = self._envs, self._envs.snapshot()
        tensors = [*self.state, *([] if self._noise is None else [self._noise.noise])]
        kept = [tensor.clone() for tensor in tensors]

        def back() -> None:
            envs.restore(saved)
            envs.discard_sums()
            for tensor, before in zip(tensors, kept, strict=True):
                tensor.copy_(before)

        return back

    def _run_in_torch(self, check: Callable[[], None] = lambda: None) -> None:
        self._envs.carry_over()
        for first, part in zip(self.first_state, self.state, strict=True):
            first.copy_(part)
        self._envs.slices.run(partial(self._run_slice, check))

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
