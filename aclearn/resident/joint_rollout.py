"""Rollouts of several policies in the same worlds, in torch between the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from aclearn.distributions import torch_distribution_of
from aclearn.distributions.torch_categorical import epsilon_greedy
from aclearn.policies.architecture import POLICY
from aclearn.policies.cuda_stream import CudaStream
from aclearn.resident import kernels
from aclearn.resident.acting_network import ActingNetwork
from aclearn.resident.policy_rows import PolicyRows
from aclearn.resident.slices import Slice
from aclearn.resident.torch_rollout import TorchRollout
from aclearn.resident.warp_setup import wp
from aclearn.resident.worlds import ResidentWorlds


@dataclass(frozen=True, eq=False)
class ActingPolicy:
    """One of the policies of a joint rollout.

    Attributes:
        epsilon: `[N·A]`, of ε-greedy exploration, which the caller writes; None: actions are
            sampled.
    """

    acting: ActingNetwork
    rows: PolicyRows
    epsilon: Tensor | None = None


class JointRollout(TorchRollout):
    """Fills the buffers with T steps of every world, whose agents have these policies."""

    def __init__(
        self,
        envs: ResidentWorlds,
        policies: Sequence[ActingPolicy],
        *,
        stream: CudaStream | None = None,
    ) -> None:
        super().__init__(envs, [policy.acting for policy in policies], stream=stream)
        self._policies = policies
        self._distributions = [
            torch_distribution_of(policy.rows.kind.spec.action).kind for policy in policies
        ]
        self._parameters, choosers = [], []
        for kind in envs.kinds:
            width = kind.sampler.parameters._length_
            parameters = torch.zeros(envs.num_envs * kind.agents, width, device=envs.device)
            chooser = kernels.parameters_chooser(kind.observation_type, kind.sampler)
            source = chooser.source()
            source.parameters = wp.from_torch(parameters, dtype=kind.sampler.parameters)
            self._parameters.append(parameters)
            choosers.append((chooser, source))
        self._rollout = envs.rollout(choosers)

    @override
    @torch.inference_mode()
    def _run_slice(self, check: Callable[[], None], part: Slice) -> None:
        states = []
        for policy in self._policies:
            first, size = part.first * policy.rows.agents, part.size * policy.rows.agents
            states.append([each[first : first + size] for each in policy.acting.state])
        for t in range(self._steps):
            check()
            outputs = []
            for policy, distribution, state in zip(
                self._policies, self._distributions, states, strict=True
            ):
                rows, buffers = policy.rows, policy.rows.kind.buffers
                seen = rows.of(buffers.observations[t], part)
                found = policy.acting.network.outputs(seen, state=tuple(state))
                given = found[POLICY]
                if buffers.masks is not None:
                    given = distribution.mask(given, rows.of(buffers.masks[t], part))
                if policy.epsilon is not None:
                    first = part.first * rows.agents
                    its = policy.epsilon[first : first + part.size * rows.agents]
                    given = epsilon_greedy(given, its)
                rows.write(self._parameters[rows.place], given, part)
                outputs.append(found)
            self._rollout.run_slice(part, 1, row=t, ahead=t)
            for policy, state, found in zip(self._policies, states, outputs, strict=True):
                if state:
                    valid = policy.rows.of(policy.rows.kind.buffers.valid[t], part)
                    for now, each in zip(state, policy.acting.network.states, strict=True):
                        now.copy_(found[each.next].masked_fill(~valid.unsqueeze(1), 0.0))
