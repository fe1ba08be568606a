"""A replay memory: many environments' newest steps, and random transitions of them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aclearn.config import ReplayConfig
from aclearn.errors import ConfigError
from aclearn.learning.batch import Batch
from aclearn.learning.sources.frame_columns import FrameColumns
from aclearn.learning.sources.sum_tree import SumTree
from aclearn.types import NO_ACTOR, UnrollSpec, origins_of

#: Added to an error, so that every step can be drawn (Schaul et al. 2016, section 3.3).
_LEAST_ERROR = 1e-6
_INTEGERS = torch.int64
#: Fields that are kept in the form of batches, where a run has them.
_OF_BATCH = (
    "actions",
    "behaviour_log_prob",
    "behaviour_parameters",
    "rewards",
    "terminated",
    "truncated",
    "valid",
    "masks",
)


class ReplayMemory:
    """Keeps columns, T steps of one environment each, and forgets the oldest ones.

    A column has each frame once: T + 1, and the older ones of its first stack. A transition never
    leaves its column: its last steps look ahead less far than `n_steps`. All is in the memory of
    `device`, which allocates it at once; a CPU's grows as it is written.

    Args:
        config: the section `replay`. Beyond `max_bytes` come the older frames of the first stack of
            each episode that begins within a column.
        at_once: largest B of a batch that is added.

    Attributes:
        steps: valid ones that are there.

    Raises:
        ConfigError: `at_once` columns do not fit; names the key.
    """

    def __init__(
        self,
        spec: UnrollSpec,
        device: torch.device,
        config: ReplayConfig,
        *,
        discount: float,
        at_once: int = 1,
        seed: int = 0,
    ) -> None:
        self.device, self._config, self._discount = device, config, discount
        self._length, leaves = spec.length, spec.env.observation
        shapes = _shapes(spec)
        column_bytes = sum(
            prod(shape) * torch.empty((), dtype=dtype).element_size()
            for shape, dtype in shapes.values()
        ) + sum(FrameColumns.column_bytes(leaf, spec.length) for leaf in leaves.values())
        self.columns = min(config.size // spec.length, config.max_bytes // column_bytes)
        for key, of_column in (("size", spec.length), ("max_bytes", column_bytes)):
            if getattr(config, key) < at_once * of_column:
                raise ConfigError(
                    f"replay.{key}: the memory must hold {at_once} unrolls of one environment, "
                    f"which come at a time; set it to {at_once * of_column} or more"
                )
        self.nbytes = self.columns * column_bytes
        self._kept = {
            name: torch.zeros(self.columns, *shape, dtype=dtype, device=device)
            for name, (shape, dtype) in shapes.items()
        }
        self._observations = {
            name: FrameColumns(leaf, columns=self.columns, length=spec.length, device=device)
            for name, leaf in leaves.items()
        }
        self._tree = SumTree(self.columns * spec.length, device)
        self._highest = torch.ones((), dtype=torch.float64, device=device)
        self._random = torch.Generator(device).manual_seed(seed)
        self._written = 0  # columns since the beginning; number k is in slot k % columns
        self.steps = 0

    def add(self, batch: Batch) -> int:
        """Append a batch `[T, B]`, each column as likely as the likeliest step so far.

        Returns:
            The steps that it overwrote before they were ever drawn.
        """
        slots = self._written + torch.arange(batch.width, device=batch.rewards.device)
        slots %= self.columns
        kept = self._kept
        never_drawn = (kept["valid"][slots] & ~kept["drawn"][slots]).sum()
        forgotten = kept["valid"][slots].sum()
        columns = self._columns_of(batch)
        for name, frames in self._observations.items():
            frames.add(batch.observations[name], batch.valid, slots)
        for name, values in columns.items():  # after what may find no memory
            kept[name][slots] = values
        numbers = slots.unsqueeze(1) * self._length + torch.arange(
            self._length, device=slots.device
        )
        weights = kept["valid"][slots] * self._highest
        self._tree.set(numbers.flatten(), weights.flatten())
        self._written += batch.width
        lost, gone, more = torch.stack([never_drawn, forgotten, batch.valid.sum()]).tolist()
        self.steps += more - gone
        return int(lost)

    def sample(self, count: int) -> Batch:
        """`count` transitions, `[1, count]`: observations `[2, count]`, of a step and where it led.

        The rewards are discounted sums of at most `n_steps` steps. They end before the end of an
        episode or column, and `discounts` is the factor of the value behind them: γ to the number
        of steps, or 0 behind a terminated one. There must be a valid step.
        """
        kept = self._kept
        uniform = torch.rand(count, dtype=torch.float64, device=self.device, generator=self._random)
        first = self._tree.draw(uniform)
        slots, t = first // self._length, first % self._length
        rewards, lengths = self._returns(first, t)
        last = first + lengths - 1
        terminated = kept["terminated"].view(-1)[last]
        new = ~kept["drawn"].view(-1)[first]
        new[1:] &= first[1:] != first[:-1]  # ascending: a repeated step is a neighbour
        writes = slots + (self._written - 1 - slots) // self.columns * self.columns

        def of(name: str) -> Tensor:
            return kept[name].flatten(0, 1).index_select(0, first).unsqueeze(0)

        def ends(name: str) -> Tensor:
            return kept[name].view(-1)[last].unsqueeze(0)

        rows, parameters = torch.stack([t, t + lengths]), "behaviour_parameters"
        versions: NDArray[np.int64] = of("versions").cpu().numpy()
        valid = torch.ones_like(terminated).unsqueeze(0)
        batch = Batch(
            observations={
                name: frames.at(slots.expand_as(rows), rows, kept["valid"])
                for name, frames in self._observations.items()
            },
            actions=of("actions"),
            behaviour_log_prob=of("behaviour_log_prob"),
            rewards=rewards.unsqueeze(0),
            terminated=ends("terminated"),
            truncated=ends("truncated"),
            valid=valid,
            versions=versions,
            behaviour_parameters=of(parameters) if parameters in kept else None,
            masks=kept["masks"][slots, rows] if "masks" in kept else None,
            new=new.unsqueeze(0),
            all_valid=True,
            discounts=(self._discount**lengths * ~terminated).float().unsqueeze(0),
            weights=self._weights(first).unsqueeze(0) if self._config.prioritised else None,
            places=(writes * self._length + t).unsqueeze(0),
            origins=kept["origins"][slots].cpu().numpy(),
        )
        kept["drawn"].view(-1)[first] = True  # last: after an error none has left the memory
        return batch

    def learned(self, places: Tensor, errors: Tensor) -> None:
        """Set priorities by the errors of a sample; steps that were overwritten are left out.

        Args:
            errors: of its steps, in any sign; one that is not finite changes nothing.
        """
        places, errors = places.flatten(), errors.detach().flatten().double()
        leaves = places % len(self._tree.weights)
        there = (places // self._length >= self._written - self.columns) & errors.isfinite()
        weights = (errors.abs() + _LEAST_ERROR) ** self._exponent
        weights = torch.where(there, weights, self._tree.weights[leaves])
        self._highest = torch.maximum(self._highest, weights.max())
        self._tree.set(leaves, weights)

    @property
    def _exponent(self) -> float:
        """Of an error in its step's priority; 0 where all steps are alike."""
        return self._config.priority_exponent if self._config.prioritised else 0.0

    @property
    def nbytes_there(self) -> int:
        """Bytes of the columns that are there."""
        return self.nbytes // self.columns * min(self._written, self.columns)

    @property
    def never_drawn(self) -> int:
        """Valid steps that are there and have not been drawn."""
        return int((self._kept["valid"] & ~self._kept["drawn"]).sum())

    def state(self) -> dict[str, NDArray[Any]]:
        """All that `load_state` needs, by name; a copy."""
        there = min(self._written, self.columns)
        tensors = {name: tensor[:there] for name, tensor in self._kept.items()}
        tensors["priorities"] = self._tree.weights[: there * self._length]
        tensors["highest"], tensors["random"] = self._highest, self._random.get_state()
        tensors["exponent"] = torch.tensor(self._exponent, dtype=torch.float64)
        saved = {name: tensor.cpu().numpy().copy() for name, tensor in tensors.items()}
        for leaf, frames in self._observations.items():
            saved |= {f"{leaf}/{name}": array for name, array in frames.state(there).items()}
        return saved | {"written": np.array(self._written)}

    def load_state(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a `state`; none of its steps is new any more.

        The random numbers of another kind of device are left out.

        Raises:
            KeyError, ValueError, RuntimeError: it is of a memory of another size or kind, and the
                memory has the steps that it had.
        """
        written = int(saved["written"])
        there = min(written, self.columns)
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in saved.items()}
        if len(tensors["valid"]) != there:
            raise ValueError(
                f"replay: expected {there} saved columns, got {len(tensors['valid'])}: replay.size "
                "was another one"
            )
        into = {name: kept[:there] for name, kept in self._kept.items()}
        into["priorities"] = self._tree.weights[: there * self._length]
        into["highest"] = self._highest
        for name, kept in into.items():
            if tensors[name].shape != kept.shape:
                raise ValueError(
                    f"replay: expected {name} of shape {list(kept.shape)}, got "
                    f"{list(tensors[name].shape)}"
                )
        if len(tensors["random"]) == len(self._random.get_state()):
            self._random.set_state(tensors["random"])
        # frames without valid steps change nothing, so an error may leave some
        for leaf, frames in self._observations.items():
            names = ("frames", "older_places", "older")
            frames.load_state({name: saved[f"{leaf}/{name}"] for name in names}, there)
        before = float(tensors["exponent"])
        if before not in (0.0, self._exponent):
            for name in ("priorities", "highest"):  # of another exponent; 0 is no valid step
                weights = tensors[name]
                tensors[name] = torch.where(weights > 0, weights ** (self._exponent / before), 0.0)
        weights = tensors["priorities"].to(self.device)
        self._tree.set(torch.arange(len(weights), device=self.device), weights)
        del into["priorities"]
        for name, kept in into.items():
            kept.copy_(tensors[name])
        self._kept["drawn"].fill_(True)
        self._written = written
        self.steps = int(self._kept["valid"].sum())

    def _columns_of(self, batch: Batch) -> dict[str, Tensor]:
        """What is kept of a batch's steps, `[B, T, …]`."""
        values = {name: getattr(batch, name) for name in self._kept if name in _OF_BATCH}
        values["versions"] = torch.from_numpy(np.array(batch.versions)).to(batch.rewards.device)
        values["drawn"] = torch.zeros_like(batch.valid)
        values["stops"] = batch.terminated | batch.truncated
        values["stops"][-1] = True
        values["stops"][:-1] |= ~batch.valid[1:]
        columns = {name: value.transpose(0, 1) for name, value in values.items()}
        origins = batch.origins
        if origins is None:
            origins = origins_of(NO_ACTOR, batch.width)
        return columns | {"origins": torch.from_numpy(origins).to(batch.rewards.device)}

    def _returns(self, first: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Discounted sums of the next rewards, float32, and of how many steps."""
        offsets = torch.arange(self._config.n_steps, device=first.device)
        ahead = torch.minimum(offsets, (self._length - 1 - t).unsqueeze(1))
        steps = first.unsqueeze(1) + ahead
        goes_on = ~self._kept["stops"].view(-1)[steps[:, :-1]]
        there = torch.ones_like(steps, dtype=torch.bool)
        there[:, 1:] = goes_on.cumprod(1).bool()
        rewards = self._kept["rewards"].view(-1)[steps] * self._discount**offsets
        return rewards.masked_fill(~there, 0.0).sum(1), there.sum(1)

    def _weights(self, leaves: Tensor) -> Tensor:
        """Importance weights (N P)^−β, the largest of them 1 (Schaul et al. 2016, algorithm 1)."""
        weights = self._tree.weights[leaves] ** -self._config.importance_exponent
        return (weights / weights.max()).float()


def _shapes(spec: UnrollSpec) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """Name of what is kept → shape and dtype of one column."""
    steps, action = spec.length, spec.env.action
    whole = torch.float32 if action.numbers else _INTEGERS
    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "actions": ((steps, *action.shape), whole),
        "behaviour_log_prob": ((steps,), torch.float32),
        "rewards": ((steps,), torch.float32),
        "versions": ((steps,), _INTEGERS),
        "origins": ((), _INTEGERS),
    }
    for name in ("terminated", "truncated", "valid", "drawn", "stops"):
        shapes[name] = ((steps,), torch.bool)
    if spec.parameters:
        shapes["behaviour_parameters"] = ((steps, spec.parameters), torch.float32)
    if spec.env.masked:
        shapes["masks"] = ((steps + 1, action.mask_width), torch.bool)
    return shapes
