"""`auto`: the network and the number format by what the policy sees."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from aclearn.types import ObservationSpec

#: Least sides of images that the convolutions of the named architectures can see, in pixels.
_NATURE_SIDE, _SMALL_CNN_SIDE, _MINIGRID_SIDE = 36, 5, 4
#: Side of the images from which a network's convolutions gain time by half precision, in pixels.
_HALVES_PAY_SIDE: Final = 32
#: Their images are codes from 0 to 10, whatever their space says.
_CODES: Final = re.compile(r"(^|:)(MiniGrid|BabyAI)-")


class Choice(NamedTuple):
    """A value that `auto` stands for, and why."""

    value: str
    why: str


def choose_architecture(observation: ObservationSpec, env_id: str = "") -> Choice:
    """The architecture that fits observations; there is one for all."""
    side = _smallest_side(observation)
    if side is None:
        return Choice("mlp", "no images: hidden layers alone")
    images = f"images of {side} pixels and more" if len(observation) > 1 else f"{side} pixels"
    if _CODES.search(env_id) and side >= _MINIGRID_SIDE:
        return Choice("minigrid", "MiniGrid's images are small, and their numbers are codes to 10")
    if side >= _NATURE_SIDE:
        return Choice("nature", f"{images}: three convolutions")
    if side >= _SMALL_CNN_SIDE:
        return Choice("small-cnn", f"{images}, too few for nature: two small convolutions")
    return Choice("mlp", f"{images}, too few for convolutions: flattened")


def halves_pay(observation: ObservationSpec) -> bool:
    """Whether half precision saves more time than its rounding costs: with large images alone."""
    side = _smallest_side(observation)
    return side is not None and side >= _HALVES_PAY_SIDE


def _smallest_side(observation: ObservationSpec) -> int | None:
    """The smallest height or width of all images; None without images."""
    sides = (side for leaf in observation.values() if leaf.is_image for side in leaf.shape[1:])
    return min(sides, default=None)
