"""A picture of Tag: taggers pink, runners blue (Lan et al. 2021, figure 8)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Pixels of the square's side, and of the margin around it.
_SIDE, _MARGIN = 384, 12
_GROUND, _GRID = (255, 255, 255), (228, 228, 232)
_TAGGER, _RUNNER = (231, 84, 148), (64, 116, 214)
#: Lines of the grid in each direction.
_LINES = 10


def tag_picture(
    x: NDArray[Any],
    y: NDArray[Any],
    tagger: NDArray[np.bool_],
    in_game: NDArray[np.bool_],
    side: float,
) -> NDArray[np.uint8]:
    """The agents of the game `[408, 408, 3]`, y upwards.

    Args:
        x, y: places `[A]` from 0 to `side`.
    """
    size = _SIDE + 2 * _MARGIN
    picture = np.full((size, size, 3), _GROUND, np.uint8)
    lines = _MARGIN + np.linspace(0, _SIDE - 1, _LINES + 1).astype(int)
    inside = slice(_MARGIN, _MARGIN + _SIDE)
    picture[lines, inside] = picture[inside, lines] = _GRID
    radius = max(3, min(9, int(_SIDE / (4 * np.sqrt(len(x))))))
    steps = np.arange(-radius, radius + 1)
    down, right = np.nonzero(steps[:, None] ** 2 + steps**2 <= radius**2)
    for hunts, colour in ((False, _RUNNER), (True, _TAGGER)):  # taggers on top
        for a in np.flatnonzero((tagger == hunts) & in_game.astype(bool)):
            column = _MARGIN + round(float(x[a]) / side * (_SIDE - 1))
            row = _MARGIN + round((1 - float(y[a]) / side) * (_SIDE - 1))
            picture[row + steps[down], column + steps[right]] = colour
    return picture
