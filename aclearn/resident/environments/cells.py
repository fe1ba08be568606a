"""Which agents are near: agents of a square are sorted into square cells, once a step.

A search reads the cells around a place, and goes on outwards as long as a nearer agent may be
there. So its cost does not grow with the number of agents, and what it finds is what a search of
all of them would find: of equal distances the lowest agent number first.
"""

import math
from typing import Any

from aclearn.resident.warp_setup import wp

#: No agent.
NOBODY = wp.constant(wp.int32(2**31 - 1))
#: Agents that a cell should hold where fewer neighbours are asked for.
_FEWEST = 4
#: Shares of a cell's width: distances and the borders of cells are rounded differently.
ROUNDING = wp.constant(wp.float32(1e-3))


@wp.struct
class Cells:
    """The agents of N squares by cell.

    Those of cell c of square e are `agents[e, first[e, c] : first[e, c + 1]]` in order of their
    numbers, and `places` says where they are. There are `count · count` cells of `width`.
    """

    first: wp.array2d(dtype=wp.int32)
    agents: wp.array2d(dtype=wp.int32)
    places: wp.array2d(dtype=wp.vec2)
    count: wp.int32
    width: wp.float32


def make_cells(device: Any, envs: int, agents: int, side: float, neighbours: int) -> Any:
    """Empty cells of squares of this side length.

    Args:
        neighbours: how many agents a search looks for.
    """
    made = Cells()
    count = _columns(agents, neighbours)
    made.first = wp.zeros((envs, count * count + 2), dtype=wp.int32, device=device)
    made.agents = wp.zeros((envs, agents), dtype=wp.int32, device=device)
    made.places = wp.zeros((envs, agents), dtype=wp.vec2, device=device)
    made.count, made.width = count, side / count
    return made


def cells_bytes(agents: int, neighbours: int) -> int:
    """Bytes of the arrays of one square."""
    return 4 * (_columns(agents, neighbours) ** 2 + 2) + (4 + 8) * agents


def _columns(agents: int, neighbours: int) -> int:
    """Number of cells along a side."""
    return max(1, int(math.sqrt(agents / max(neighbours / 2, _FEWEST))))


@wp.func
def along(cells: Cells, x: wp.float32) -> wp.int32:
    """The column of cells of an x, or the row of a y."""
    return wp.clamp(wp.int32(x / cells.width), 0, cells.count - 1)


@wp.func
def clear_cells(cells: Cells, e: wp.int32):
    """Forget the agents of square e; then `count_agent` for each, then `end_count`."""
    for c in range(cells.count * cells.count + 2):
        cells.first[e, c] = 0


@wp.func
def count_agent(cells: Cells, e: wp.int32, x: wp.float32, y: wp.float32):
    """Count an agent; one cell further on, so that `put_agent` can use the place before."""
    c = along(cells, y) * cells.count + along(cells, x)
    cells.first[e, c + 2] = cells.first[e, c + 2] + 1


@wp.func
def end_count(cells: Cells, e: wp.int32):
    """All agents are counted; then `put_agent` for each, in order of their numbers."""
    for c in range(cells.count * cells.count):
        cells.first[e, c + 2] = cells.first[e, c + 2] + cells.first[e, c + 1]


@wp.func
def put_agent(cells: Cells, e: wp.int32, a: wp.int32, x: wp.float32, y: wp.float32):
    """Put an agent into its cell."""
    c = along(cells, y) * cells.count + along(cells, x)
    at = cells.first[e, c + 1]
    cells.first[e, c + 1] = at + 1
    cells.agents[e, at] = a
    cells.places[e, at] = wp.vec2(x, y)


@wp.func
def covered(cells: Cells, x: wp.float32, y: wp.float32, rings: wp.int32) -> wp.float32:
    """Within this distance the cells around a place hold all agents; infinite for all cells.

    Args:
        rings: of cells around that of the place.
    """
    column = along(cells, x)
    row = along(cells, y)
    least = wp.float32(wp.inf)
    if column - rings > 0:
        least = wp.min(least, x - wp.float32(column - rings) * cells.width)
    if column + rings + 1 < cells.count:
        least = wp.min(least, wp.float32(column + rings + 1) * cells.width - x)
    if row - rings > 0:
        least = wp.min(least, y - wp.float32(row - rings) * cells.width)
    if row + rings + 1 < cells.count:
        least = wp.min(least, wp.float32(row + rings + 1) * cells.width - y)
    return least - ROUNDING * cells.width


@wp.func
def key_of(distance: wp.float32, agent: wp.int32) -> wp.uint64:
    """A number whose order is that of distances, then of agents."""
    return (wp.uint64(wp.cast(distance, wp.uint32)) << wp.uint64(32)) + wp.uint64(agent)


@wp.func
def distance_of(key: wp.uint64) -> wp.float32:
    """The distance of a key."""
    return wp.cast(wp.uint32(key >> wp.uint64(32)), wp.float32)


@wp.func
def farthest(key: wp.uint64) -> wp.float32:
    """A square of distances beyond which no key is lower than this one."""
    distance = distance_of(key)
    return distance * distance * 1.000001


def nearest_function(count: int) -> Any:
    """A Warp function: the `count` agents that are nearest to agent a, but for itself.

    `(cells, e, a, x, y) → numbers`, the nearest first; `NOBODY` where there are fewer.
    """
    keys_type = wp.types.vector(length=count, dtype=wp.uint64)
    numbers = wp.types.vector(length=count, dtype=wp.int32)
    last = count - 1

    @wp.func
    def scan(
        keys: keys_type,
        cells: Cells,
        e: wp.int32,
        a: wp.int32,
        x: wp.float32,
        y: wp.float32,
        row: wp.int32,
        left: wp.int32,
        right: wp.int32,
    ) -> keys_type:
        """Cells `left` to `right` of a row, as far as they are there."""
        if row < 0 or row >= cells.count or right < 0 or left >= cells.count:
            return keys
        places = cells.places[e]
        agents = cells.agents[e]
        begin = cells.first[e, row * cells.count + wp.max(left, 0)]
        end = cells.first[e, row * cells.count + wp.min(right, cells.count - 1) + 1]
        limit = farthest(keys[last])
        for at in range(begin, end):
            dx = places[at][0] - x
            dy = places[at][1] - y
            square = dx * dx + dy * dy
            if square <= limit and agents[at] != a:
                key = key_of(wp.sqrt(square), agents[at])
                for place in range(wp.static(count)):  # unrolled: the keys stay in registers
                    lower = wp.min(keys[place], key)
                    key = wp.max(keys[place], key)
                    keys[place] = lower
                limit = farthest(keys[last])
        return keys

    @wp.func
    def nearest(cells: Cells, e: wp.int32, a: wp.int32, x: wp.float32, y: wp.float32) -> numbers:
        keys = keys_type()
        for place in range(wp.static(count)):
            keys[place] = key_of(wp.float32(wp.inf), NOBODY)
        column = along(cells, x)
        row = along(cells, y)
        keys = scan(keys, cells, e, a, x, y, row, column - 1, column + 1)
        keys = scan(keys, cells, e, a, x, y, row - 1, column - 1, column + 1)
        keys = scan(keys, cells, e, a, x, y, row + 1, column - 1, column + 1)
        rings = wp.int32(1)
        within = covered(cells, x, y, rings)
        while within < wp.float32(wp.inf) and distance_of(keys[last]) >= within:
            rings += 1
            keys = scan(keys, cells, e, a, x, y, row - rings, column - rings, column + rings)
            for near in range(row - rings + 1, row + rings):
                keys = scan(keys, cells, e, a, x, y, near, column - rings, column - rings)
                keys = scan(keys, cells, e, a, x, y, near, column + rings, column + rings)
            keys = scan(keys, cells, e, a, x, y, row + rings, column - rings, column + rings)
            within = covered(cells, x, y, rings)
        found = numbers()
        for place in range(wp.static(count)):
            found[place] = wp.int32(keys[place] & wp.uint64(0xFFFFFFFF))
        return found

    return nearest
