"""The smaller copy of the policy that acts in resident environments (`resident.chain`)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from aclearn.policies import Architecture
from aclearn.policies.network import tensors_of
from aclearn.types import OBSERVATION, Visited
from compress import CompressorChain, Context, Policy

#: Newest observations that a link may measure on.
_OBSERVATIONS = 512


class ActingCopy:
    """Compresses each version of the policy before it acts."""

    def __init__(self, chain: CompressorChain, architecture: Architecture, seed: int) -> None:
        self.chain_id = chain.id
        self._chain, self._original = chain, architecture.acting()
        self.architecture = chain.plan(self._original).architecture
        self._context = Context(seed=seed)

    def of(self, network: torch.nn.Module, observations: Tensor) -> Mapping[str, Tensor]:
        """The weights of the copy, by name, on the CPU.

        Args:
            observations: visited, `[N, D]`.
        """
        visited = observations[-_OBSERVATIONS:].cpu().numpy()
        self._context.visited = Visited({OBSERVATION: visited})
        policy = Policy.of(self._original, tensors_of(network, self._original.tensor_shapes()))
        self._context.begin(policy)
        for link in self._chain.links:
            policy = link.compress(policy, self._context)
        return {name: torch.from_numpy(array) for name, array in policy.tensors.items()}
