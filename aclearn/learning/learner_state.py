"""All that updates change, and its form in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.algorithms import TargetNetworkConfig
from aclearn.config import LossConfig, OptimiserConfig
from aclearn.errors import CheckpointError
from aclearn.learning.normalisers import Normalisers
from aclearn.learning.optimiser import make_optimiser
from aclearn.learning.target_network import TargetNetwork
from aclearn.policies.network import PolicyNetwork, load_tensors, tensors_of

#: Mutable state of torch's GradScaler.
_SCALER_STATE = ("scale", "_growth_tracker")
#: State of each weight by kind of optimiser.
_OPTIMISER_STATE = {
    "adam": {"step", "exp_avg", "exp_avg_sq"},
    "rmsprop": {"step", "square_avg"},
    "rmsprop_tf": {"square_avg"},
}


class LearnerState:
    """Weights, optimiser, running means and target network of a learner, which guards them.

    Args:
        network: the target policy, on its device.
        optimiser: its configuration.
        loss: its configuration, which may ask for a target network.
        scaler: of the loss; disabled but for fp16.

    Attributes:
        network: as given.
        parameters: its weights, in its own order.
        normalisers: of its normalising layers.
        optimiser: of its weights.
        scaler: as given.
        target: the target network, if there is one.
        advantage_squares: sum of squared advantages, older ones decayed.
        advantage_weight: their number, in the same way.
    """

    def __init__(
        self,
        network: PolicyNetwork,
        *,
        optimiser: OptimiserConfig,
        loss: LossConfig,
        scaler: torch.amp.GradScaler,
    ) -> None:
        self.network, self.scaler, self._kind = network, scaler, optimiser.kind
        self.parameters: list[Tensor] = list(network.parameters())
        self.normalisers = Normalisers(network)
        self.optimiser = make_optimiser(network.parameters(), optimiser)
        self.target: TargetNetwork | None = None
        if isinstance(loss, TargetNetworkConfig):
            every, rate = loss.target_update_every, loss.target_update_rate
            self.target = TargetNetwork(self.parameters, every=every, rate=rate)
        self.advantage_squares = self.advantage_weight = 0.0

    @property
    def memory(self) -> list[Tensor]:
        """The tensors that updates change, without those of the scaler."""
        moments = [value for state in self.optimiser.state.values() for value in state.values()]
        weights = [weight.detach() for weight in self.parameters]
        target = [] if self.target is None else [*self.target.weights, self.target.updates]
        return [*weights, *moments, *target, *self.normalisers.memory]

    def saved(self) -> dict[str, NDArray[Any]]:
        """A copy of everything under flat names."""
        saved: dict[str, NDArray[Any]] = {
            f"weights/{name}": array for name, array in tensors_of(self.network).items()
        }
        for name, parameter in self.network.named_parameters():
            for key, value in self.optimiser.state.get(parameter, {}).items():
                # contiguous: moments of channels-last weights have their memory order
                array = value.detach().cpu().contiguous().numpy().copy()
                saved[f"optimiser/{name}/{key}"] = array
        if self.target is not None:
            names = [name for name, _ in self.network.named_parameters()]
            for name, weight in zip(names, self.target.weights, strict=True):
                saved[f"target/{name}"] = weight.cpu().contiguous().numpy().copy()
            saved["target_updates"] = np.array(int(self.target.updates), np.int64)
        advantages = [self.advantage_squares, self.advantage_weight]
        saved["normaliser/advantages"] = np.array(advantages, np.float64)
        saved |= self.normalisers.state()
        if self.scaler.is_enabled():
            scaler = self.scaler.state_dict()
            saved["scaler"] = np.array([scaler[key] for key in _SCALER_STATE], np.float64)
        return saved

    def load(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `saved`; a missing target network begins at the weights.

        Raises:
            CheckpointError: the tensors do not fit this architecture or this optimiser.
        """
        weights = {
            name.removeprefix("weights/"): array
            for name, array in saved.items()
            if name.startswith("weights/")
        }
        try:
            load_tensors(self.network, weights)
        except ValueError as error:
            raise CheckpointError(f"the checkpoint is of another architecture: {error}") from error
        if self.target is not None:
            self._load_target(self.target, saved)
        squares, weight = saved.get("normaliser/advantages", np.zeros(2)).tolist()
        self.advantage_squares, self.advantage_weight = squares, weight
        self.normalisers.load_state(saved)
        if self.scaler.is_enabled() and "scaler" in saved:
            scale, growth_tracker = saved["scaler"].tolist()
            mine = dict(zip(_SCALER_STATE, (scale, int(growth_tracker)), strict=True))
            self.scaler.load_state_dict(self.scaler.state_dict() | mine)
        for name, parameter in self.network.named_parameters():
            self._load_moments(name, parameter, saved)

    def _load_target(self, target: TargetNetwork, saved: Mapping[str, NDArray[Any]]) -> None:
        target.set(self.parameters)
        if "target_updates" in saved:
            names = [name for name, _ in self.network.named_parameters()]
            weights = [torch.from_numpy(np.array(saved[f"target/{name}"])) for name in names]
            target.set(weights, updates=int(saved["target_updates"]))

    def _load_moments(
        self, name: str, parameter: Tensor, saved: Mapping[str, NDArray[Any]]
    ) -> None:
        prefix = f"optimiser/{name}/"
        state = {
            key.removeprefix(prefix): torch.from_numpy(np.array(array))
            for key, array in saved.items()
            if key.startswith(prefix)
        }
        if state and set(state) != _OPTIMISER_STATE[self._kind]:
            raise CheckpointError(
                f"the checkpoint is of another optimiser than optimiser.kind: {self._kind}: "
                f"{name} has {sorted(state)}, expected {sorted(_OPTIMISER_STATE[self._kind])}"
            )
        for key, value in state.items():
            if value.ndim and value.shape != parameter.shape:
                raise CheckpointError(f"{prefix}{key}: expected shape {parameter.shape}")
            if value.ndim:
                # the moments must lie in memory as the weights do
                moment = torch.empty_like(parameter)
                moment.copy_(value)
                state[key] = moment
        if "step" in state and self.optimiser.defaults.get("fused"):
            # a fused optimiser counts where it computes, others on the CPU
            state["step"] = state["step"].to(parameter.device)
        if state:
            self.optimiser.state[parameter] = state
