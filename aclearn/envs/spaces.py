"""From what an environment shows to what a policy reads: spaces, checks, frame stacks."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from aclearn.errors import EnvironmentFailure
from aclearn.types import ActionSpec, LeafSpec


class ObservationError(Exception):
    """An observation or reward that is not what the environment's spaces promise.

    Attributes:
        reason: a word for the counter of faults.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Layout(Protocol):
    """Fills one batch of observations after another."""

    leaf: LeafSpec

    def begin(self) -> NDArray[Any]:
        """A fresh batch [B, *shape] for the coming step."""
        ...

    def write(self, b: int, observation: Any) -> None:
        """Put what environment b has reached into the batch; raises ObservationError."""
        ...

    def write_first(self, b: int, observation: Any) -> None:
        """Put the first observation of an episode into the batch; raises ObservationError."""
        ...

    def not_finite(self) -> list[int]:
        """The environments whose observation in the batch holds NaN or infinity."""
        ...


def read_actions(space: Any, name: str) -> ActionSpec:
    """The discrete actions of an action space.

    Raises:
        EnvironmentFailure: actions that are not supported yet.
    """
    if not isinstance(space, gymnasium.spaces.Discrete):
        raise EnvironmentFailure(
            f"environment {name}: its actions are {space}; only Discrete actions are supported, "
            f"{type(space).__name__} actions are not supported yet. Wrap the environment so that "
            "it offers a finite set of actions (gymnasium.wrappers.TransformAction)"
        )
    return ActionSpec(int(space.n), int(space.start))


def read_layout(space: Any, name: str, *, num_envs: int, frame_stack: int) -> Layout:
    """The layout that fits an observation space.

    A Box of uint8 with two or three axes is an image (H, W), (H, W, C) or (C, H, W); the axis of
    the channels is the last one unless the first is smaller. Any other Box is flat.

    Raises:
        EnvironmentFailure: observations that are not supported yet, or a stack of flat ones.
    """
    if not isinstance(space, gymnasium.spaces.Box):
        raise EnvironmentFailure(
            f"environment {name}: its observations are {space}; only Box observations are "
            f"supported, {type(space).__name__} observations are not supported yet. Wrap the "
            "environment so that it shows one array (gymnasium.wrappers.FlattenObservation)"
        )
    if space.dtype == np.uint8 and len(space.shape) in (2, 3):
        return ImageLayout(space.shape, num_envs=num_envs, frame_stack=frame_stack)
    if frame_stack != 1:
        raise EnvironmentFailure(
            f"environment {name}: env.frame_stack is {frame_stack}, but only images (uint8 with "
            f"2 or 3 axes) are stacked and these observations are {space.dtype} of shape "
            f"{space.shape}. Set env.frame_stack: 1"
        )
    return FlatLayout(space.shape, space.dtype, num_envs=num_envs)


def _as_promised(observation: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The observation as an array, when its shape is right and its dtype loses no kind.

    float64 for float32 passes, for an environment that is careless there still means the same
    numbers; float for uint8 does not, since the cast would turn [0, 1] into black.
    """
    array = np.asarray(observation)
    if array.shape != shape:
        raise ObservationError(
            "observation_shape", f"observation has shape {array.shape}, its space says {shape}"
        )
    if not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ObservationError(
            "observation_dtype", f"observation has dtype {array.dtype}, its space says {dtype}"
        )
    return array


class FlatLayout:
    """Observations of any numeric kind and shape as float32 vectors [B, D]."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], *, num_envs: int) -> None:
        self._shape = shape
        self._dtype = dtype
        self._num_envs = num_envs
        self._batch = np.zeros((num_envs, *shape), np.float32)
        self.leaf = LeafSpec((int(np.prod(shape)),), "float32")

    def begin(self) -> NDArray[Any]:
        """A fresh batch [B, D] float32."""
        self._batch = np.zeros((self._num_envs, *self._shape), np.float32)
        return self._batch.reshape(self._num_envs, -1)

    def write(self, b: int, observation: Any) -> None:
        """Put an observation into row b."""
        # Checked by hand, since the assignment below would broadcast a wrong shape in silence.
        if (
            type(observation) is not np.ndarray
            or observation.shape != self._shape
            or observation.dtype != self._dtype
        ):
            # Everything numeric may become float32, also the float64 that an int Box shows.
            observation = _as_promised(observation, self._shape, np.dtype(np.float32))
        self._batch[b] = observation

    write_first = write

    def not_finite(self) -> list[int]:
        """Rows with a number that is not finite; one vectorised look in the usual case."""
        finite = np.isfinite(self._batch)
        if finite.all():
            return []
        rows = finite.reshape(self._num_envs, -1).all(axis=1)
        return [int(b) for b in np.flatnonzero(~rows)]


class ImageLayout:
    """uint8 images channels-first, the newest S frames stacked, [B, S*C, H, W].

    An episode's first observation fills the whole stack.
    """

    def __init__(self, shape: tuple[int, ...], *, num_envs: int, frame_stack: int) -> None:
        self._shape = shape
        self._axes: tuple[int, ...] | None = None
        if len(shape) == 2:
            channels, height, width = 1, *shape
        elif shape[0] < shape[2]:
            channels, height, width = shape
        else:
            height, width, channels = shape
            self._axes = (2, 0, 1)
        self._channels = channels
        self.leaf = LeafSpec((frame_stack * channels, height, width), "uint8", frame_stack)
        self._batch = np.zeros((num_envs, *self.leaf.shape), np.uint8)

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
        frame = self._frame(observation)
        frames = self.leaf.frame_stack, self._channels
        stack = self._batch[b].reshape(*frames, *self.leaf.shape[1:])
        stack[:] = frame

    def not_finite(self) -> list[int]:
        """Always empty: bytes are finite."""
        return []

    def _frame(self, observation: Any) -> NDArray[Any]:
        if (
            type(observation) is not np.ndarray
            or observation.shape != self._shape
            or observation.dtype != np.uint8
        ):
            observation = _as_promised(observation, self._shape, np.dtype(np.uint8))
        frame: NDArray[Any] = observation
        return frame if self._axes is None else frame.transpose(self._axes)
