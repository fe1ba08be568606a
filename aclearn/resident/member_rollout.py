"""Rollouts of several policies at once: each plays in environments of its own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call

from aclearn.learning.batched.tensors import ForEachMember
from aclearn.policies import Architecture
from aclearn.policies.architecture import POLICY
from aclearn.policies.layer_network import LayerNetwork
from aclearn.resident import kernels
from aclearn.resident.engine import ResidentEnvs
from aclearn.resident.network import policy_layers
from aclearn.resident.warp_setup import wp


class _Parameters(LayerNetwork):
    """The layers on which the actions depend."""

    def forward(self, seen: Tensor) -> Tensor:
        return self.outputs(seen)[POLICY]


class MemberRollout:
    """Fills the buffers with steps of M policies of one architecture without a memory.

    Args:
        envs: in M groups of neighbours.
        weights: `[M, *shape]` by name, read at each step; others than the policy's are ignored.
    """

    def __init__(
        self, envs: ResidentEnvs, architecture: Architecture, weights: Mapping[str, Tensor]
    ) -> None:
        self._envs = envs
        self._network = _Parameters(policy_layers(architecture), architecture.observation)
        self._network.to(envs.device).requires_grad_(False)
        self._weights = {name: weights[name] for name, _ in self._network.named_parameters()}
        self._act = ForEachMember(self._parameters_of)
        (rows,) = envs.kinds
        width = architecture.parameter_count
        self._parameters = torch.zeros(envs.num_envs, width, device=envs.device)
        chooser = kernels.parameters_chooser(rows.observation_type, rows.sampler)
        source = chooser.source()
        source.parameters = wp.from_torch(self._parameters, dtype=rows.sampler.parameters)
        self._rollout = envs.rollout([(chooser, source)])

    def _parameters_of(self, weights: Mapping[str, Tensor], seen: Tensor) -> Tensor:
        given: Tensor = functional_call(self._network, dict(weights), (seen,))
        return given

    @torch.no_grad()
    def run(self) -> None:
        """T steps of every environment; the first observations are the last ones of before."""
        envs = self._envs
        envs.carry_over()
        parameters = self._parameters.view(envs.groups, -1, self._parameters.shape[1])
        steps = len(envs.buffers.rewards)
        for t in range(steps):
            seen = envs.buffers.observations[t].view(envs.groups, -1, envs.env.observation_size)
            parameters.copy_(self._act(self._weights, seen))
            envs.slices.run(lambda part: self._rollout.run_slice(part, 1, row=t, ahead=t))  # noqa: B023
        envs.advance(steps)
