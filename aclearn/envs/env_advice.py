"""Advice on an environment that keeps its contract: what may be meant otherwise, or learn badly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from aclearn.envs.contract import ContractError, in_range, kind, numbers_of
from aclearn.types import ActionSpec

#: Beyond these, the size of rewards, observations and actions matters for learning.
_LARGE_REWARD, _LARGE_NUMBER, _LARGE_ACTION = 100.0, 100.0, 10.0
#: Numbers of a Box of floats from which on it looks like an image.
_IMAGE_NUMBERS = 256


class Seen:
    """What an environment has shown: sizes of numbers, and forms that gymnasium's API has not."""

    def __init__(self, space: Any, masked_by_info: bool) -> None:
        self.space = space
        self.largest_reward = self.largest_number = 0.0
        self.rewards = 0
        self._sentences: dict[str, str] = {}
        self._mask_is_read = masked_by_info

    def sentences(self) -> list[str]:
        """One for each form that is not gymnasium's and that a run takes all the same."""
        return list(self._sentences.values())

    def observation(self, call: str, shown: Any) -> None:
        """Look at the parts of an observation that a run takes."""
        for path, space, part in _parts(self.space, shown, ""):
            if isinstance(space, spaces.Box):
                self._box(call, path or "the observation", space, part)

    def reward(self, given: Any, number: float) -> None:
        """Look at the reward of a step that a run takes as `number`."""
        self.rewards += 1
        self.largest_reward = max(self.largest_reward, abs(number))
        if np.ndim(given):
            self._say(
                "reward",
                f"step: the reward is an array of shape {np.shape(given)}; in "
                "gymnasium's API it is a float; a run takes its only number",
            )

    def flag(self, name: str, given: Any) -> None:
        """Look at the type of a flag that a run takes."""
        if not isinstance(given, bool | np.bool_):
            self._say(name, f"step: {name} is {kind(given)}; in gymnasium's API it is a bool")

    def info(self, info: Mapping[str, Any]) -> None:
        """Look at an info."""
        if "action_mask" in info and not self._mask_is_read:
            self._say("mask", "its info has an action_mask; env.action_mask: info applies it")

    def _box(self, call: str, name: str, space: spaces.Box, given: Any) -> None:
        try:
            array = numbers_of(given, space.shape, np.dtype(space.dtype), name)
        except ContractError:  # a fault
            return
        if not in_range(array).all():  # a fault too
            return
        if array.dtype != space.dtype:
            self._say(
                f"{name} dtype",
                f"{call}: {name} has the dtype {array.dtype}, its space says {space.dtype}; a run "
                "converts it",
            )
        outside = (array < space.low) | (array > space.high)
        if outside.any():
            place = tuple(int(i) for i in np.argwhere(outside)[0])
            self._say(
                f"{name} bounds",
                f"{call}: {name} is {array[place]:.4g} at {list(place)}, its space says "
                f"{space.low[place]:.4g} to {space.high[place]:.4g}; a run takes it",
            )
        if not (space.dtype == np.uint8 and array.ndim in (2, 3)):
            self.largest_number = max(self.largest_number, float(np.abs(array).max(initial=0)))

    def _say(self, key: str, sentence: str) -> None:
        self._sentences.setdefault(key, sentence)


def advice_on_numbers(seen: Seen) -> Iterator[str]:
    """Advice on the sizes of rewards and observations, and on images of floats."""
    for path, space, _ in _parts(seen.space, None, ""):
        if (
            isinstance(space, spaces.Box)
            and np.issubdtype(space.dtype, np.floating)
            and len(space.shape) in (2, 3)
            and np.prod(space.shape) >= _IMAGE_NUMBERS
        ):
            yield (
                f"{path or 'the observation'} is a Box of floats with the shape {space.shape}, "
                f"which a policy sees as {np.prod(space.shape)} numbers in a row; if it is an "
                "image, show uint8 (0 to 255), so that convolutions see it"
            )
    if seen.largest_number > _LARGE_NUMBER:
        yield (
            f"observations reach {seen.largest_number:.3g}; set policy.normalise_observations: "
            "true, or scale them"
        )
    if seen.largest_reward > _LARGE_REWARD:
        yield (
            f"rewards reach {seen.largest_reward:.3g}; set loss.normalise_returns, or clip or "
            "scale them"
        )
    elif seen.rewards and seen.largest_reward == 0.0:
        yield "every reward was 0 with random actions: nothing to learn from yet"


def advice_on_actions(action: ActionSpec) -> Iterator[str]:
    """Advice on Box actions with wide bounds, or with none."""
    bounds = [pair for part in action.parts for pair in zip(part.low, part.high, strict=True)]
    widest = max(((high - low) / 2 for low, high in bounds), default=0.0)
    if widest == np.inf:
        yield "some actions have no bounds: those of a new policy are about -1 to 1, unscaled"
    elif widest > _LARGE_ACTION:
        low, high = max(bounds, key=lambda pair: pair[1] - pair[0])
        yield (
            f"actions reach from {low:g} to {high:g}, over which those of a new policy are spread; "
            "if useful ones are much smaller, narrow the space "
            "(gymnasium.wrappers.RescaleAction)"
        )


def same(one: Any, other: Any) -> bool:
    """Whether two observations or results are equal, whatever containers they have."""
    if isinstance(one, Mapping):
        keys = one.keys() if isinstance(other, Mapping) else None
        return keys == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        fits = isinstance(other, tuple | list) and len(one) == len(other)
        return fits and all(map(same, one, other))
    return bool(np.array_equal(one, other))


def _parts(space: Any, shown: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Name, space and value of each part of a space that is shown; of all for None."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield path, space, shown
        return
    inner = dict(space.spaces if isinstance(space, spaces.Dict) else enumerate(space.spaces))
    if isinstance(shown, tuple | list):
        shown = dict(enumerate(shown))
    for key, part in inner.items():
        name = f"{path}.{key}" if path else str(key)
        if shown is None:
            yield from _parts(part, None, name)
        elif isinstance(shown, Mapping) and key in shown:
            yield from _parts(part, shown[key], name)
