"""The leaves of an observation, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Name of the leaf if the space is no Dict or Tuple.
OBSERVATION = "observation"

#: Leaf name → uint8 images or float32 vectors `[N, *shape]`, in the order of the ObservationSpec.
Observations = Mapping[str, NDArray[Any]]


def row_count(observations: Observations) -> int:
    """N; 0 without a leaf."""
    return len(next(iter(observations.values()), ()))


@dataclass(frozen=True)
class LeafSpec:
    """One array of an observation.

    Attributes:
        shape: images are channels-first, (S*C, H, W) with S stacked frames of C channels each, the
            newest frame last; all others are flat, (D,).
        dtype: "uint8" for images, "float32" for flat leaves.
        frame_stack: S; 1 for flat leaves.
        high: largest number of an image, by which networks divide it; without use in flat leaves.
        binary: its numbers are 0 or 1: choices as one-hot vectors, or switches.
    """

    shape: tuple[int, ...]
    dtype: str
    frame_stack: int = 1
    high: int = 255
    binary: bool = False

    @property
    def is_image(self) -> bool:
        """Whether it has channels, height and width."""
        return len(self.shape) == 3

    @property
    def has_moments(self) -> bool:
        """Whether a mean and a deviation say something of its numbers: floats of any size."""
        return self.dtype == "float32" and not self.binary

    @property
    def newest(self) -> slice:
        """Slice of the newest frame on the first axis; everything without a stack."""
        return slice(self.shape[0] - self.shape[0] // self.frame_stack, None)

    @property
    def older(self) -> slice:
        """Slice of the older frames on the first axis; empty without a stack."""
        return slice(0, self.newest.start)

    @property
    def nbytes(self) -> int:
        """Bytes of one observation with its whole stack."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, eq=False)
class ObservationSpec(Mapping[str, LeafSpec]):
    """Leaf name → its specification, in the order of all observations; hashable."""

    leaves: Mapping[str, LeafSpec]

    @classmethod
    def plain(cls, shape: tuple[int, ...], dtype: str, frame_stack: int = 1) -> ObservationSpec:
        """The specification of observations that are a single array."""
        return cls({OBSERVATION: LeafSpec(shape, dtype, frame_stack)})

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON-able data, without the usual bounds; `from_dict` is its inverse."""
        leaves = [{"name": name, **asdict(leaf)} for name, leaf in self.leaves.items()]
        for leaf in leaves:
            for key in ("high", "binary"):
                if leaf[key] == getattr(LeafSpec, key):
                    del leaf[key]
        return {"leaves": leaves}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ObservationSpec:
        """The specification that `to_dict` described.

        Raises:
            ValueError, TypeError, KeyError: the data is invalid.
        """
        leaves = [dict(leaf) for leaf in data["leaves"]]
        return cls(
            {
                leaf.pop("name"): LeafSpec(**{**leaf, "shape": tuple(leaf["shape"])})
                for leaf in leaves
            }
        )

    def __eq__(self, other: object) -> bool:
        # the order counts
        return isinstance(other, ObservationSpec) and [*self.items()] == [*other.items()]

    def __hash__(self) -> int:
        return hash(tuple(self.items()))

    def __str__(self) -> str:
        return ", ".join(
            ("" if name == OBSERVATION else f"{name}: ") + f"{leaf.dtype} {leaf.shape}"
            for name, leaf in self.items()
        )

    def __getitem__(self, name: str) -> LeafSpec:
        return self.leaves[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.leaves)

    def __len__(self) -> int:
        return len(self.leaves)
