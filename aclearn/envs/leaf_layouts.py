"""The leaves of observations: each fills a batch with the arrays that environments show."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from aclearn.envs.contract import ContractError, in_range, numbers_of, range_error
from aclearn.types import LeafSpec, ObservationPart


class LeafLayout(ABC):
    """Fills one batch [B, *leaf.shape] of a leaf after another.

    Args:
        dtype: to which its numbers are cast without a change.
        batch: the first one, of zeros; an array of each environment's numbers in any shape.
    """

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: Any, leaf: LeafSpec, batch: NDArray[Any]
    ) -> None:
        self.name, self.leaf = name, leaf
        self._shape, self._dtype, self._batch = shape, np.dtype(dtype), batch

    def begin(self) -> NDArray[Any]:
        """A fresh batch for the coming step."""
        self._batch = np.zeros_like(self._batch)
        return self._batch.reshape(len(self._batch), *self.leaf.shape)

    @abstractmethod
    def write(self, b: int, observation: Any) -> None:
        """Write environment b's observation into the batch.

        Raises:
            ContractError: it does not fit the space.
        """

    def write_first(self, b: int, observation: Any) -> None:
        """Write environment b's first observation of an episode; errors as of `write`."""
        self.write(b, observation)

    def out_of_range(self) -> dict[int, ContractError]:
        """Each environment with a number in the batch that no run can learn from → the error."""
        return {}

    @abstractmethod
    def write_group(self, observations: Any, first: NDArray[np.bool_]) -> None:
        """Write the observations of all environments, B of the space's; errors as of `write`.

        Args:
            first: [B], where they are the first of an episode.
        """

    @abstractmethod
    def shown(self, row: NDArray[Any]) -> NDArray[Any]:
        """The numbers of one row of the leaf in the space's shape, the inverse of `write`."""

    def _checked(self, observation: Any) -> NDArray[Any]:
        return numbers_of(observation, self._shape, self._dtype, self.name)

    def _checked_group(self, observations: Any) -> NDArray[Any]:
        shape = (len(self._batch), *self._shape)
        return numbers_of(observations, shape, self._dtype, self.name)


class FlatLayout(LeafLayout):
    """Observations of any numeric kind and shape as float32 vectors [B, D]; switches are 0 or 1."""

    def __init__(
        self, name: str, shape: tuple[int, ...], *, num_envs: int, binary: bool = False
    ) -> None:
        leaf = LeafSpec((int(np.prod(shape)),), "float32", binary=binary)
        batch = np.zeros((num_envs, *shape), np.float32)
        super().__init__(name, shape, np.float32, leaf, batch)
        #: The newest observation of each environment as it was given, for messages.
        self._given: list[NDArray[Any]] | NDArray[Any] = [np.zeros(shape)] * num_envs

    def write(self, b: int, observation: Any) -> None:
        """Put an observation into row b."""
        given = self._given[b] = self._checked(observation)
        if self.leaf.binary and ((given != 0) & (given != 1)).any():
            raise _out_of_range(self.name, observation)
        if given.dtype == np.float32:
            self._batch[b] = given
            return
        with np.errstate(over="ignore"):  # found below
            self._batch[b] = given

    @override
    def write_group(self, observations: Any, first: NDArray[np.bool_]) -> None:
        given = self._given = self._checked_group(observations)
        if self.leaf.binary and ((given != 0) & (given != 1)).any():
            raise _out_of_range(self.name, observations)
        with np.errstate(over="ignore"):  # found below
            self._batch[:] = given

    def shown(self, row: NDArray[Any]) -> NDArray[Any]:
        """The numbers in the space's shape."""
        return row.reshape(self._shape)

    def out_of_range(self) -> dict[int, ContractError]:
        """The rows with a number that no run can learn from; usually one vectorised check."""
        fits = in_range(self._batch)
        if fits.all():
            return {}
        rows = fits.reshape(len(fits), -1).all(axis=1)
        return {int(b): range_error(self._given[b], self.name) for b in np.flatnonzero(~rows)}


class OneHotLayout(LeafLayout):
    """Choices as float32 vectors [B, D]: for each choice of n a 1 among n numbers.

    Args:
        starts: the smallest value of each choice.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        counts: NDArray[np.int64],
        starts: NDArray[np.int64],
        *,
        num_envs: int,
    ) -> None:
        leaf = LeafSpec((int(counts.sum()),), "float32", binary=True)
        batch = np.zeros((num_envs, *leaf.shape), np.float32)
        super().__init__(name, shape, np.int64, leaf, batch)
        self._counts, self._starts = counts, starts
        self._offsets = np.cumsum(counts) - counts

    def write(self, b: int, observation: Any) -> None:
        """Put the choices into row b; also raises `ContractError` for one out of range."""
        chosen = self._checked(observation).astype(np.int64).reshape(-1) - self._starts
        if (chosen < 0).any() or (chosen >= self._counts).any():
            raise _out_of_range(self.name, observation)
        self._batch[b] = 0.0
        self._batch[b, self._offsets + chosen] = 1.0

    @override
    def write_group(self, observations: Any, first: NDArray[np.bool_]) -> None:
        B = len(self._batch)
        chosen = self._checked_group(observations).astype(np.int64).reshape(B, -1) - self._starts
        if (chosen < 0).any() or (chosen >= self._counts).any():
            raise _out_of_range(self.name, observations)
        self._batch[:] = 0.0
        np.put_along_axis(self._batch, self._offsets + chosen, 1.0, axis=1)

    def shown(self, row: NDArray[Any]) -> NDArray[Any]:
        """The choices in the space's shape."""
        chosen = [part.argmax() for part in np.split(row, self._offsets[1:])]
        return (np.array(chosen) + self._starts).reshape(self._shape)


class ImageLayout(LeafLayout):
    """uint8 images channels-first, the newest S frames stacked, [B, S*C, H, W].

    An episode's first observation fills the whole stack.

    Args:
        channels_first: whether three axes are (C, H, W); None: see `channels_of`.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        num_envs: int,
        frame_stack: int,
        channels_first: bool | None = None,
        high: int = 255,
    ) -> None:
        self._axes: tuple[int, ...] | None = None
        if len(shape) == 2:
            channels, height, width = 1, *shape
        elif channels_of(shape) == "first" if channels_first is None else channels_first:
            channels, height, width = shape
        else:
            height, width, channels = shape
            self._axes = (2, 0, 1)
        self._channels = channels
        leaf = LeafSpec((frame_stack * channels, height, width), "uint8", frame_stack, high)
        batch = np.zeros((num_envs, *leaf.shape), np.uint8)
        super().__init__(name, shape, np.uint8, leaf, batch)

    def begin(self) -> NDArray[Any]:
        """A fresh batch that already holds the older frames in their new places."""
        older = self._batch
        self._batch = np.empty_like(older)
        self._batch[:, : -self._channels] = older[:, self._channels :]
        return self._batch

    def write(self, b: int, observation: Any) -> None:
        """Put a frame on the stack of environment b."""
        self._batch[b, -self._channels :] = self._frame(observation)

    def write_first(self, b: int, observation: Any) -> None:
        """Fill the stack of environment b with one frame."""
        frames = self.leaf.frame_stack, self._channels
        stack = self._batch[b].reshape(*frames, *self.leaf.shape[1:])
        stack[:] = self._frame(observation)

    @override
    def write_group(self, observations: Any, first: NDArray[np.bool_]) -> None:
        frames = self._checked_group(observations)
        if self._axes is not None:
            frames = frames.transpose(0, 3, 1, 2)
        frames = frames.reshape(len(frames), self._channels, *self.leaf.shape[1:])
        self._batch[:, -self._channels :] = frames
        self._batch[first] = np.tile(frames[first], (1, self.leaf.frame_stack, 1, 1))

    def shown(self, row: NDArray[Any]) -> NDArray[Any]:
        """The picture in the space's shape; a stack has an axis of the frames in front."""
        frames = row.reshape(self.leaf.frame_stack, self._channels, *row.shape[1:])
        if self._axes is not None:
            frames = frames.transpose(0, 2, 3, 1)
        frames = frames.reshape(self.leaf.frame_stack, *self._shape)
        return frames if self.leaf.frame_stack > 1 else frames[0]

    def _frame(self, observation: Any) -> NDArray[Any]:
        frame = self._checked(observation)
        return frame if self._axes is None else frame.transpose(self._axes)


def layout_of(part: ObservationPart, *, num_envs: int, high: int = LeafSpec.high) -> LeafLayout:
    """The layout of the leaf that is made of a part."""
    name, shape = part.leaf, part.shape
    if part.kind == "choices":
        counts, starts = (np.array(each, np.int64) for each in (part.counts, part.starts))
        return OneHotLayout(name, shape, counts, starts, num_envs=num_envs)
    if part.kind in ("numbers", "switches"):
        return FlatLayout(name, shape, num_envs=num_envs, binary=part.kind == "switches")
    return ImageLayout(
        name,
        shape,
        num_envs=num_envs,
        frame_stack=part.frames,
        channels_first=part.channels == "first",
        high=high,
    )


def channels_of(shape: tuple[int, ...]) -> Literal["first", "last"]:
    """Which of an image's three axes is that of the channels, by their lengths.

    Height and width are often equal: (7, 7, 20) has 20 channels. Otherwise channels are fewer.
    """
    first, middle, last = shape
    is_first = first < last
    if (first == middle) != (middle == last):
        is_first = middle == last
    return "first" if is_first else "last"


def _out_of_range(name: str, observation: Any) -> ContractError:
    """The error of a choice that the leaf's space does not have."""
    return ContractError(
        "observation_range", f"{name} is {observation!s:.200}, which its space does not have"
    )
