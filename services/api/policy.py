"""A trained policy that acts in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aclearn.distributions import distribution_of
from aclearn.errors import ArgumentError
from aclearn.types import OBSERVATION, ActionSpec, ObservationSpec
from services.api.plain_errors import plain_errors

if TYPE_CHECKING:
    from services.evaluator.saved_policy import SavedPolicy


class Policy:
    """The policy of a checkpoint, made by `load`.

    Attributes:
        observation: leaf name → shape and dtype of its observations.
        action: of its actions.
        updates: number of updates in its weights.
    """

    def __init__(self, saved: SavedPolicy, *, seed: int | None = None) -> None:
        self.observation: ObservationSpec = saved.spec.observation
        self.action: ActionSpec = saved.spec.action
        self.updates = saved.updates
        self._executable = saved.executable()
        self._distribution = distribution_of(self.action)
        self._rng = np.random.default_rng(seed)

    @plain_errors
    def act(
        self,
        observation: ArrayLike | Mapping[str, ArrayLike],
        *,
        greedy: bool = False,
        mask: ArrayLike | None = None,
    ) -> Any:
        """The action for an observation, or the actions for a batch, as the environment takes them.

        Args:
            observation: as `aclearn.make_env` gives them: a flat float32 vector, or channels-first
                uint8 images with the frame stack, the newest frame last. Of several leaves a
                mapping. With one more axis in front it is a batch of B observations.
            greedy: take the most probable action instead of sampling.
            mask: `[A]` or `[B, A]` bool, the allowed actions; None: all.

        Returns:
            For one observation an int for a single discrete action, else the environment's array or
            its Dict or Tuple of them. For a batch an array `[B, …]`, or B Dicts or Tuples.

        Raises:
            ArgumentError: the observation or the mask has another shape or dtype.
        """
        leaves, batched = self._checked(observation)
        count = len(next(iter(leaves.values())))
        parameters = self._executable.step(leaves).parameters
        parameters = self._distribution.mask(parameters, self._mask(mask, count, batched))
        if greedy:
            sampled = self._distribution.mode(parameters)
        else:
            sampled, _ = self._distribution.sample(parameters, self._rng)
        actions = self.action.to_env(sampled)
        if not batched:
            return actions[0]
        nested = any(part.path for part in self.action.parts)
        return actions if nested else np.asarray(actions)

    def _checked(
        self, observation: ArrayLike | Mapping[str, ArrayLike]
    ) -> tuple[dict[str, NDArray[Any]], bool]:
        """Each leaf as `[B, *shape]` in its dtype, and whether the observation was a batch."""
        given = observation if isinstance(observation, Mapping) else {OBSERVATION: observation}
        names = list(self.observation)
        if sorted(given) != sorted(names):
            raise ArgumentError(
                f"observation: expected {self._expected()}, got {_words(observation)}"
            )
        arrays = {name: _array(name, given[name]) for name in names}
        counts = {
            array.shape[: array.ndim - len(self.observation[name].shape)]
            for name, array in arrays.items()
        }
        fits = len(counts) == 1 and all(
            array.shape == (*next(iter(counts)), *self.observation[name].shape)
            and _same_kind(array, self.observation[name].dtype)
            for name, array in arrays.items()
        )
        front = next(iter(counts))
        if not fits or len(front) > 1 or 0 in front:
            raise ArgumentError(
                f"observation: expected {self._expected()}, got {_words(observation)}"
            )
        cast = {
            name: np.ascontiguousarray(array, self.observation[name].dtype).reshape(
                -1, *self.observation[name].shape
            )
            for name, array in arrays.items()
        }
        for name, array in cast.items():
            if not np.isfinite(array).all():
                raise ArgumentError(f"observation: {name} has NaN or infinite numbers")
        return cast, bool(front)

    def _mask(self, mask: ArrayLike | None, count: int, batched: bool) -> NDArray[np.bool_] | None:
        if mask is None:
            return None
        shape = (count, self.action.mask_width) if batched else (self.action.mask_width,)
        array = _array("mask", mask)
        if array.shape != shape or array.dtype.kind not in "bui":
            raise ArgumentError(f"mask: expected bool {shape}, got {_words(mask)}")
        rows = array.astype(np.bool_).reshape(count, -1)
        if not self.action.allow_something(rows).all():
            raise ArgumentError("mask: it leaves no action; each choice needs an allowed one")
        return rows

    def _expected(self) -> str:
        leaves = {n: f"{leaf.dtype} {leaf.shape}" for n, leaf in self.observation.items()}
        words = leaves.get(OBSERVATION) or ", ".join(f"{n}: {leaf}" for n, leaf in leaves.items())
        return f"{words}, or a batch [B, …] of them, as aclearn.make_env gives them"

    def __repr__(self) -> str:
        return f"Policy({self.action}, {self.updates} updates)"


def _same_kind(array: NDArray[Any], dtype: str) -> bool:
    """Whether the dtype means the same numbers: float64 for float32 does, float for uint8 not."""
    return np.can_cast(array.dtype, dtype, "same_kind")


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_words(leaf)}" for name, leaf in value.items()) or "{}"
    array = np.asarray(value)
    return f"{array.dtype} {array.shape}"


def _array(name: str, given: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:  # rows of different lengths
        raise ArgumentError(f"{name}: it is no array: {error}") from error
