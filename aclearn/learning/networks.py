"""A policy's network with its critics and learned scalars, as a loss computes with them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from aclearn.distributions import torch_distribution_of
from aclearn.learning.rounding import Rounding
from aclearn.policies import Architecture
from aclearn.policies.network import PolicyNetwork, target_moments
from aclearn.types import PolicyOutput


class Networks:
    """A copy of the weights, and what is computed by them.

    Args:
        amp_dtype: autocast dtype, None for fp32.
        scalars: names of learned numbers beside the weights.
        rounding: what actors round; None: nothing.

    Attributes:
        scalars: the learned numbers, `[]` each, with gradient.
        parameters: the weights in the network's order, then the scalars.
        target_moments: mean and standard deviation in which values are learned, if in any.
        advantage_scale: factor of advantages that are not standardised by their batch.
    """

    def __init__(
        self,
        architecture: Architecture,
        *,
        device: torch.device,
        amp_dtype: torch.dtype | None = None,
        channels_last: bool = True,
        compiled: bool = False,
        scalars: Iterable[str] = (),
        rounding: Rounding | None = None,
    ) -> None:
        self._device, self._amp_dtype = device, amp_dtype
        # what actors round is the weight itself
        network = PolicyNetwork(architecture, seed=0, fold_scales=rounding is None)
        self.network = place(network, device, channels_last)
        self.values_actions = architecture.values_actions
        if rounding is not None:
            rounding.install(self.network)
        if compiled:
            self.network.compile()
        self.scalars = {
            name: torch.zeros((), device=device, requires_grad=True) for name in scalars
        }
        self.parameters: list[Tensor] = [*self.network.parameters(), *self.scalars.values()]
        self.target_moments = target_moments(self.network)
        self.advantage_scale: float | Tensor = 1.0
        self.distribution = torch_distribution_of(architecture.action_spec)
        """A function of parameters `[…, P]` and masks, which gives the distribution of actions."""

    @torch.no_grad()
    def copy(self, weights: list[Tensor]) -> None:
        """Take over the values of weights and scalars, in the order of `parameters`."""
        torch._foreach_copy_(self.parameters, weights)

    def step(
        self, leaves: Mapping[str, Tensor], state: tuple[Tensor, ...] = ()
    ) -> PolicyOutput[Tensor]:
        """The outputs for observations `[B, *shape]` of each leaf."""
        with self._autocast():
            return self.network.step(leaves, state)

    def unroll(
        self, leaves: Mapping[str, Tensor], state: tuple[Tensor, ...], starts: Tensor
    ) -> PolicyOutput[Tensor]:
        """The outputs for observations `[T, B, *shape]` of each leaf."""
        with self._autocast():
            return self.network.unroll(leaves, state, starts)

    def action_values(
        self, leaves: Mapping[str, Tensor], actions: Tensor, *, fixed: bool = False
    ) -> tuple[Tensor, ...]:
        """Each critic's Q `[…]` of observations `[…, *shape]` and actions `[…, n]`.

        Args:
            actions: between -1 and 1.
            fixed: the gradient reaches the actions, not the critics' weights.
        """
        with self._autocast():
            return self.network.action_values(leaves, actions, fixed=fixed)

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        if self._amp_dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, self._amp_dtype)


def place(network: PolicyNetwork, device: torch.device, channels_last: bool) -> PolicyNetwork:
    """Move the network to `device`, its convolutions to channels-last memory where asked."""
    network.to(device)
    if channels_last and network.architecture.convolves:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
