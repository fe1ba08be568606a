"""From an environment's spaces to a policy's observations: checks, frame stacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aclearn.errors import EnvironmentFailure
from aclearn.types import ActionSpec, LeafSpec
from aclearn.types.action_spec import ActionPart

#: Bounds of this size mean unbounded.
_LARGEST_BOUND = 1e10


class ObservationError(Exception):
    """An observation or reward outside the environment's spaces.

    Attributes:
        reason: a word for the counter of faults.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def read_actions(space: Any, name: str, *, squash: bool = False) -> ActionSpec:
    """The actions of an action space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a Dict or Tuple of these.
        name: of the environment.
        squash: numbers of a Box go through tanh.

    Raises:
        EnvironmentFailure: actions that are not supported, or that have no numbers or no bounds for
            `squash`.
    """
    parts = tuple(_parts(space, name, ()))
    if not any(part.counts or part.low for part in parts):
        raise EnvironmentFailure(f"environment {name}: its actions {space} have nothing to choose")
    spec = ActionSpec.of(parts, squash=squash)
    if squash and not spec.numbers:
        raise EnvironmentFailure(
            f"environment {name}: env.squash_actions brings the numbers of a Box between bounds, "
            f"and its actions {space} have no Box; set env.squash_actions: false"
        )
    bounds = [bound for part in parts for bound in (*part.low, *part.high)]
    if squash and not np.isfinite(bounds).all():
        raise EnvironmentFailure(
            f"environment {name}: env.squash_actions brings numbers between bounds, and its "
            f"actions {space} have none; set env.squash_actions: false or wrap the environment "
            "(gymnasium.wrappers.RescaleAction)"
        )
    return spec


def _parts(space: Any, name: str, path: tuple[str | int, ...]) -> Iterator[ActionPart]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in inner:
            yield from _parts(part, name, (*path, key))
    elif isinstance(space, spaces.Discrete):
        yield ActionPart(path, counts=(int(space.n),), starts=(int(space.start),))
    elif isinstance(space, spaces.MultiDiscrete):
        counts, starts = (tuple(each.flatten().tolist()) for each in (space.nvec, space.start))
        yield ActionPart(path, space.shape, str(space.dtype), counts, starts)
    elif isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        yield ActionPart(path, space.shape, str(space.dtype), (2,) * size, (0,) * size)
    elif isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        wide = (each.astype(np.float64).flatten() for each in (space.low, space.high))
        low, high = (np.where(np.abs(w) < _LARGEST_BOUND, w, np.copysign(np.inf, w)) for w in wide)
        bounds = {"low": tuple(low.tolist()), "high": tuple(high.tolist())}
        yield ActionPart(path, space.shape, str(space.dtype), **bounds)
    else:
        where = f" (in {'.'.join(map(str, path))})" if path else ""
        raise EnvironmentFailure(
            f"environment {name}: {type(space).__name__} actions are not supported: "
            f"{space}{where}. Expected Discrete, MultiDiscrete, MultiBinary, a Box of floats, or a "
            "Dict or Tuple of these; wrap the environment (gymnasium.wrappers.TransformAction)"
        )


def read_layout(space: Any, name: str, *, num_envs: int, frame_stack: int) -> Layout:
    """The layout for an observation space.

    A Box of uint8 with two or three axes is an image (H, W), (H, W, C) or (C, H, W); the channel
    axis is the last one unless the first is smaller. Any other Box is flat.

    Raises:
        EnvironmentFailure: observations that are not supported yet, or a stack of flat ones.
    """
    if not isinstance(space, spaces.Box):
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


def mask_row(info: Any, action: ActionSpec, *, ended: bool) -> NDArray[np.bool_]:
    """The allowed actions `[A]` that an environment's info says.

    Args:
        info: of a reset or a step.
        action: of the environment.
        ended: nothing will be chosen, so that nothing needs to be allowed.

    Raises:
        ObservationError: there is no mask, it does not fit, or it leaves a choice nothing.
    """
    given = info.get("action_mask") if isinstance(info, dict) else None
    if given is None:
        raise ObservationError("action_mask", "info['action_mask']: missing")
    parts = given if isinstance(given, tuple | list) else (given,)
    row = np.concatenate([np.ravel(part) for part in parts]).astype(np.bool_)
    if row.shape != (action.mask_width,):
        raise ObservationError(
            "action_mask", f"info['action_mask']: expected {action.mask_width}, got {row.size}"
        )
    if not action.allow_something(row):
        if not ended:
            raise ObservationError("action_mask", f"info['action_mask']: nothing allowed: {row}")
        row[:] = True
    return row


class Layout(ABC):
    """Fills one batch [B, *leaf.shape] of observations after another.

    Args:
        shape: of an observation in the environment's space.
        dtype: likewise.
        leaf: of an observation in the batch; any dtype that can be cast to its dtype is accepted.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, leaf: LeafSpec) -> None:
        self._shape, self._dtype, self.leaf = shape, np.dtype(dtype), leaf

    @abstractmethod
    def begin(self) -> NDArray[Any]:
        """A fresh batch for the coming step."""

    @abstractmethod
    def write(self, b: int, observation: Any) -> None:
        """Write environment b's observation into the batch.

        Raises:
            ObservationError: it does not fit the space.
        """

    def write_first(self, b: int, observation: Any) -> None:
        """Write the first observation of an episode into the batch; errors as of `write`."""
        self.write(b, observation)

    def not_finite(self) -> list[int]:
        """The environments with NaN or infinity in the batch."""
        return []

    def _checked(self, observation: Any) -> NDArray[Any]:
        """The observation as an array, if its shape is right and its dtype can be cast.

        float64 for float32 passes, since careless environments mean the same numbers. float for
        uint8 does not: the cast would turn [0, 1] into black.
        """
        array = np.asarray(observation)
        # NumPy would silently broadcast a wrong shape.
        if array.shape != self._shape:
            raise ObservationError(
                "observation_shape",
                f"observation has shape {array.shape}, its space says {self._shape}",
            )
        if array.dtype != self._dtype and not np.can_cast(
            array.dtype, self.leaf.dtype, "same_kind"
        ):
            raise ObservationError(
                "observation_dtype",
                f"observation has dtype {array.dtype}, its space says {self.leaf.dtype}",
            )
        return array


class FlatLayout(Layout):
    """Observations of any numeric kind and shape as float32 vectors [B, D]."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, *, num_envs: int) -> None:
        super().__init__(shape, dtype, LeafSpec((int(np.prod(shape)),), "float32"))
        self._batch = np.zeros((num_envs, *shape), np.float32)

    def begin(self) -> NDArray[Any]:
        """A fresh batch [B, D] float32."""
        self._batch = np.zeros_like(self._batch)
        return self._batch.reshape(len(self._batch), -1)

    def write(self, b: int, observation: Any) -> None:
        """Put an observation into row b."""
        self._batch[b] = self._checked(observation)

    def not_finite(self) -> list[int]:
        """The rows with a number that is not finite; usually one vectorised check."""
        finite = np.isfinite(self._batch)
        if finite.all():
            return []
        rows = finite.reshape(len(finite), -1).all(axis=1)
        return [int(b) for b in np.flatnonzero(~rows)]


class ImageLayout(Layout):
    """uint8 images channels-first, the newest S frames stacked, [B, S*C, H, W].

    An episode's first observation fills the whole stack.
    """

    def __init__(self, shape: tuple[int, ...], *, num_envs: int, frame_stack: int) -> None:
        self._axes: tuple[int, ...] | None = None
        if len(shape) == 2:
            channels, height, width = 1, *shape
        elif shape[0] < shape[2]:
            channels, height, width = shape
        else:
            height, width, channels = shape
            self._axes = (2, 0, 1)
        self._channels = channels
        leaf = LeafSpec((frame_stack * channels, height, width), "uint8", frame_stack)
        super().__init__(shape, np.uint8, leaf)
        self._batch = np.zeros((num_envs, *leaf.shape), np.uint8)

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

    def _frame(self, observation: Any) -> NDArray[Any]:
        frame = self._checked(observation)
        return frame if self._axes is None else frame.transpose(self._axes)
