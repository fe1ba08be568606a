"""The statistics of a network's normalising layers, which only the trainer updates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.errors import CheckpointError
from aclearn.learning.batch import Batch
from aclearn.learning.moments import Moments
from aclearn.learning.ranks import Group, joined_moments
from aclearn.policies.network import PolicyNetwork

#: Share of their weight that targets keep with each batch. They change as the policy does, so the
#: statistics are those of about the last hundred batches.
_TARGETS_KEPT = 0.99
_STATE = ("count", "mean", "variance")


class Normalisers:
    """Running moments in float64, and their float32 copies among the weights of a network.

    The layers "normalise" have the mean and standard deviation of their leaf over all learned
    steps. The layer "denormalise" has those of recent value targets (Pop-Art; van Hasselt et al.
    2016, Hessel et al. 2018). No method may run beside another one, or beside a reader of the
    network's weights. Everything stays where it is in the device's memory, and nothing waits for a
    GPU, so that a method can be a part of a CUDA graph.

    Args:
        network: the target policy; its tensors are changed in place.
    """

    def __init__(self, network: PolicyNetwork) -> None:
        self._layers = {layer.name: layer for layer in network.layers if layer.is_normaliser}
        self._weights = dict(network.named_parameters())
        self._moments = {}
        for name in self._layers:
            mean = self._weights[f"{name}.mean"]
            self._moments[name] = Moments.none(tuple(mean.shape), mean.device)
        self.leaves = {
            name: layer.reads[0]
            for name, layer in self._layers.items()
            if layer.kind == "normalise"
        }
        self._critic = next((name for name in self._layers if name not in self.leaves), None)

    @property
    def of_targets(self) -> bool:
        """Whether values are normalised."""
        return self._critic is not None

    @property
    def target_std(self) -> float | Tensor:
        """Standard deviation of the value targets; 1 where they are not normalised."""
        return 1.0 if self._critic is None else self._moments[self._critic].std[0]

    @property
    def memory(self) -> list[Tensor]:
        """The tensors of the moments."""
        each = self._moments.values()
        return [getattr(moments, part) for moments in each for part in _STATE]

    def moments_of(self, batch: Batch) -> dict[str, Moments]:
        """The moments of a batch's observations on which valid steps acted, by layer."""
        rows = len(batch.valid)
        return {
            name: Moments.of_valid(batch.observations[leaf][:rows], batch.valid)
            for name, leaf in self.leaves.items()
        }

    def add_observations(self, parts: Sequence[Mapping[str, Moments]], group: Group) -> None:
        """Take learned steps (`moments_of`), in parts, of all ranks into the statistics."""
        names = [name for moments in parts for name in moments]
        found = [each for moments in parts for each in moments.values()]
        for name, new in zip(names, joined_moments(group, found), strict=True):
            self._set(name, self._moments[name].joined(new))

    def moments_of_targets(self, targets: Tensor, valid: Tensor) -> Moments:
        """The moments of the valid value targets of `[T, B]`."""
        return Moments.of_valid(targets.unsqueeze(-1), valid)

    @torch.no_grad()
    def add_targets(self, moments: Moments) -> None:
        """Take value targets (`moments_of_targets`) into the statistics; values stay as they are.

        They would change with the statistics, so the layer before is rescaled: weights by σ / σ',
        biases to (σ b + μ − μ') / σ' (van Hasselt et al. 2016, proposition 1).
        """
        assert self._critic is not None
        mean, std = (self._weights[f"{self._critic}.{name}"] for name in ("mean", "std"))
        old_mean, old_std = mean.double(), std.double()
        self._set(self._critic, self._moments[self._critic].joined(moments, kept=_TARGETS_KEPT))
        [head] = self._layers[self._critic].reads
        weight, bias = self._weights[f"{head}.weight"], self._weights[f"{head}.bias"]
        weight.copy_(weight.double() * (old_std / std))
        bias.copy_((bias.double() * old_std + old_mean - mean) / std)

    @torch.no_grad()
    def _set(self, name: str, moments: Moments) -> None:
        for part in _STATE:
            getattr(self._moments[name], part).copy_(getattr(moments, part))
        most = torch.finfo(torch.float32).max  # the deviation of larger numbers has no float32
        self._weights[f"{name}.mean"].copy_(moments.mean)
        self._weights[f"{name}.std"].copy_(moments.std.clamp(max=most))

    def state(self) -> dict[str, NDArray[np.float64]]:
        """The moments under flat names, for a checkpoint."""
        return {
            f"normaliser/{name}/{part}": getattr(moments, part).cpu().numpy().copy()
            for name, moments in self._moments.items()
            for part in _STATE
        }

    def load_state(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Restore the moments of `state`; the weights hold their copies already.

        Raises:
            CheckpointError: they are missing or have other shapes.
        """
        for name, moments in self._moments.items():
            try:
                count, *parts = (np.array(saved[f"normaliser/{name}/{part}"]) for part in _STATE)
            except KeyError as error:
                raise CheckpointError(f"the checkpoint has no statistics of {name}") from error
            expected = tuple(moments.mean.shape)
            if any(part.shape != expected for part in parts):
                raise CheckpointError(
                    f"statistics of {name}: expected shape {expected}, "
                    f"got {', '.join(str(part.shape) for part in parts)}"
                )
            for mine, its in zip(_STATE, (count, *parts), strict=True):
                getattr(moments, mine).copy_(torch.from_numpy(its))
