"""Pictures of agents on a field."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Taggers and runners in figure 8 of Lan et al. (2021).
PINK, BLUE = (233, 78, 137), (58, 110, 210)
_PAPER, _FRAME = 255, 170


def dots(
    x: NDArray[Any],
    y: NDArray[Any],
    colours: NDArray[Any],
    *,
    low: float,
    high: float,
    radius: float,
    side: int = 320,
) -> NDArray[np.uint8]:
    """A white square `[side, side, 3]` with a disc for each agent; y grows upwards.

    Args:
        x, y: `[A]`, within `low` and `high`.
        colours: `[A, 3]`; later agents cover earlier ones.
        radius: of a disc, in the unit of x and y; at least 2 pixels.
    """
    picture = np.full((side, side, 3), _PAPER, np.float32)
    picture[[0, -1]] = picture[:, [0, -1]] = _FRAME
    pixels = (side - 1) / (high - low)
    r = max(2.0, radius * pixels)
    for px, py, colour in zip((x - low) * pixels, (high - y) * pixels, colours, strict=True):
        rows = np.arange(max(0, int(py - r - 1)), min(side, int(py + r) + 2))
        columns = np.arange(max(0, int(px - r - 1)), min(side, int(px + r) + 2))
        distance = np.hypot(rows[:, None] - py, columns - px)
        cover = np.clip(r + 0.5 - distance, 0.0, 1.0)[..., None]
        part = picture[rows[:, None], columns]
        picture[rows[:, None], columns] = part + cover * (np.asarray(colour) - part)
    return picture.round().astype(np.uint8)
