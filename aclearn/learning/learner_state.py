"""All that updates change, and its form in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from aclearn.config import OptimiserConfig
from aclearn.errors import CheckpointError
from aclearn.learning.decisions import is_finite
from aclearn.learning.normalisers import Normalisers
from aclearn.learning.optimiser import make_optimiser
from aclearn.learning.ranks import Group, add_up, average
from aclearn.learning.surrogate import Objective
from aclearn.learning.target_network import TargetNetwork
from aclearn.learning.vectors import in_one_vector, parts_of
from aclearn.policies.network import PolicyNetwork, load_tensors, tensors_of

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

#: Memory of the running mean square of advantages: about a hundred updates.
_ADVANTAGE_DECAY = 0.99


def running_scale(totals: Tensor) -> Tensor:
    """`[…]`, 1 / root mean square of the advantages in totals `[…, 4]`; 0 before the first ones.

    Their unit is unknown then, and one update of the critic alone costs less than a step of the
    policy that is a million times too large.
    """
    squares, weight, *_ = totals.unbind(-1)
    return (weight / squares).nan_to_num(0.0, posinf=0.0).sqrt()


class LearnerState:
    """Weights, optimiser, running means, target copies and counts of a learner, which guards them.

    Tensors stay where they are, so that a CUDA graph may contain them.

    Attributes:
        parameters: the weights in the network's own order, then the scalars.
        optimiser: of one vector for each group of weights, which are parts of it.
        moments: by the name of a weight and theirs, those of the optimiser, as parts of its own.
        totals: `[4]` float64: sum of squared advantages, older ones decayed, and their number in
            the same way, both 0 unless advantages are divided by their mean; agent steps in
            updates, each counted once; updates.
        generators: random numbers of the minibatches' order and of the losses, on the device.
    """

    def __init__(
        self, network: PolicyNetwork, *, optimiser: OptimiserConfig, objective: Objective, seed: int
    ) -> None:
        device = next(network.parameters()).device
        self.network, self._kind = network, optimiser.kind
        self.scalars = {
            name: nn.Parameter(torch.tensor(value, device=device))
            for name, value in objective.scalars.items()
        }
        self._named: dict[str, nn.Parameter] = dict(network.named_parameters()) | self.scalars
        self.parameters: list[Tensor] = list(self._named.values())
        self.normalisers = Normalisers(network)
        groups = objective.optimiser_groups(self._named)
        vectors = [nn.Parameter(in_one_vector(group["params"])) for group in groups]
        pairs = list(zip(groups, vectors, strict=True))
        self.optimiser = make_optimiser(
            [{**group, "params": [vector]} for group, vector in pairs], optimiser
        )
        names = {weight: name for name, weight in self._named.items()}
        self.moments: dict[str, dict[str, Tensor]] = {name: {} for name in self._named}
        for group, vector in pairs:
            weights = group["params"]
            for key, value in self.optimiser.state[vector].items():
                # the number of steps is one for all of them
                parts = parts_of(value, weights) if value.ndim else [value] * len(weights)
                for weight, part in zip(weights, parts, strict=True):
                    self.moments[names[weight]][key] = part
        self.target: TargetNetwork | None = None
        if objective.targets is not None:
            weights = dict(network.named_parameters())
            self.target = TargetNetwork(weights, **objective.targets._asdict())
        self.totals = torch.zeros(4, dtype=torch.float64, device=device)
        self._averaged_steps = self.learned_steps.clone()  # after the newest average
        decay = [_ADVANTAGE_DECAY, _ADVANTAGE_DECAY, 1.0, 1.0]
        self.decay = torch.tensor(decay, dtype=torch.float64, device=device)
        self.generators = {
            name: torch.Generator(device).manual_seed(seed) for name in ("minibatches", "losses")
        }

    def _others(self) -> dict[str, Tensor]:
        """What is saved by these names and in this form."""
        return {
            **{f"scalars/{name}": scalar for name, scalar in self.scalars.items()},
            "totals": self.totals,
        }

    @property
    def learned_steps(self) -> Tensor:
        """`[]`, agent steps in updates, each counted once."""
        return self.totals[2]

    @property
    def updates(self) -> Tensor:
        """`[]`, their number."""
        return self.totals[3]

    def count(self, figures: Tensor, applied: Tensor) -> None:
        """Add an update to the totals if it was applied, `[]` bool; `figures` `[4]` as `totals`.

        An overflowed sum would stay in a mean for ever, so it is left out.
        """
        after = torch.addcmul(figures, self.decay, self.totals)
        torch.where(applied & is_finite(after), after, self.totals, out=self.totals)

    @property
    def target_weights(self) -> list[Tensor] | None:
        """The weights of the target copies, then the scalars; None without such copies."""
        if self.target is None:
            return None
        return [*self.target.weights, *self.scalars.values()]

    @torch.no_grad()
    def average(self, group: Group) -> None:
        """Replace all that updates change by its mean over ranks which make their own ones.

        The number of learned steps is that of all of them; each keeps its number of updates.
        """
        if group.size == 1:
            return
        learned, updates = self.learned_steps - self._averaged_steps, self.updates.clone()
        add_up(group, [learned])
        average(group, self.memory)
        self._averaged_steps += learned
        self.learned_steps.copy_(self._averaged_steps)
        self.updates.copy_(updates)

    @property
    def memory(self) -> list[Tensor]:
        """The tensors that updates change."""
        return [
            *(parameter.detach() for parameter in self.parameters),
            *(value for moments in self.moments.values() for value in moments.values()),
            *([] if self.target is None else [*self.target.copies.values(), self.target.updates]),
            *self.normalisers.memory,
            self.totals,
        ]

    def digest(self) -> Tensor:
        """`[]` int64: of the weights' bits; equal weights have equal ones, on any device."""
        bits = [_bits(parameter).sum() for parameter in self.parameters]
        order = torch.arange(1, len(bits) + 1, device=bits[0].device)
        return (torch.stack(bits) * order).sum()

    def saved(self) -> dict[str, NDArray[Any]]:
        """A copy of everything under flat names."""
        tensors = self._others()
        for name, moments in self.moments.items():
            tensors |= {f"optimiser/{name}/{key}": value for key, value in moments.items()}
        if self.target is not None:
            tensors |= {f"target/{name}": copy for name, copy in self.target.copies.items()}
            tensors["target_updates"] = self.target.updates
        tensors |= {f"random/{name}": each.get_state() for name, each in self.generators.items()}
        saved: dict[str, NDArray[Any]] = {
            f"weights/{name}": array for name, array in tensors_of(self.network).items()
        }
        for name, tensor in tensors.items():
            # contiguous: moments of channels-last weights have their memory order
            saved[name] = tensor.detach().cpu().contiguous().numpy().copy()
        return saved | self.normalisers.state()

    @torch.no_grad()
    def load(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Continue from `saved`; missing target copies begin at the weights.

        Raises:
            CheckpointError: the tensors do not fit this architecture or this optimiser.
        """
        try:
            load_tensors(self.network, _under("weights/", saved))
        except ValueError as error:
            raise CheckpointError(f"the checkpoint is of another architecture: {error}") from error
        if self.target is not None:
            copies = _under("target/", saved)
            for name, copy in self.target.copies.items():
                copy.copy_(_tensor(copies[name]) if copies else self._named[name])
            self.target.updates.copy_(_tensor(saved.get("target_updates", np.zeros((), np.int64))))
        for name, tensor in self._others().items():
            if name in saved:
                tensor.copy_(_tensor(saved[name]))
        self._averaged_steps = self.learned_steps.clone()
        self.normalisers.load_state(saved)
        for name, generator in self.generators.items():
            state = saved.get(f"random/{name}")
            # that of another kind of device has another size
            if state is not None and len(state) == len(generator.get_state()):
                generator.set_state(_tensor(state))
        for name, moments in self.moments.items():
            self._load_moments(name, moments, saved)

    def _load_moments(
        self, name: str, mine: Mapping[str, Tensor], saved: Mapping[str, NDArray[Any]]
    ) -> None:
        given = _under(f"optimiser/{name}/", saved)
        if given and set(given) != set(mine):
            raise CheckpointError(
                f"the checkpoint is of another optimiser than optimiser.kind: {self._kind}: "
                f"{name} has {sorted(given)}, expected {sorted(mine)}"
            )
        for key, array in given.items():
            if array.shape != tuple(mine[key].shape):
                raise CheckpointError(
                    f"optimiser/{name}/{key}: expected shape {tuple(mine[key].shape)}, "
                    f"got {array.shape}"
                )
            mine[key].copy_(_tensor(array))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().view(_INTEGERS[tensor.element_size()])


def _under(prefix: str, saved: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): array for name, array in saved.items() if name.startswith(prefix)
    }


def _tensor(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(array))
