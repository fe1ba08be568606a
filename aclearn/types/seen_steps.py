"""Agent steps of each actor in a trainer's account, as two arrays.

A heartbeat has them of thousands of actors: more than its header holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MOST_ID_BYTES: Final = 48
"""Most bytes of an actor's incarnation, of which ours have 32."""

BYTES_OF_AN_ACTOR: Final = MOST_ID_BYTES + 8
"""Most bytes of an actor in both arrays."""

CLOSED_REPORTED: Final = 256
"""Incarnations that a trainer has closed lately, among those of a heartbeat."""

_MOST_STEPS: Final = 2**53


def pack_seen(seen: Mapping[str, int]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Incarnation → agent steps, as arrays.

    Returns:
        Incarnations [A, W] in UTF-8, filled up with zeros, and steps [A]; W is 1 or more.
    """
    names = [incarnation.encode() for incarnation in seen]
    width = max(map(len, names), default=0) or 1
    rows = np.array(names, f"S{width}").view(np.uint8).reshape(len(names), width)
    return rows, np.fromiter(seen.values(), np.int64, len(names))


def unpack_seen(names: NDArray[np.uint8], steps: NDArray[np.int64]) -> dict[str, int]:
    """The mapping of two arrays that a peer may have made.

    Raises:
        ValueError: they are none of `pack_seen`; says why.
    """
    count, width = names.shape
    if steps.shape != (count,) or not 1 <= width <= MOST_ID_BYTES:
        raise ValueError(
            f"expected actors [A, 1 to {MOST_ID_BYTES}] and steps [A], "
            f"got {names.shape} and {steps.shape}"
        )
    if count and not 0 <= steps.min() <= steps.max() <= _MOST_STEPS:
        raise ValueError("expected agent steps from 0 to 2^53, got others")
    rows: Any = np.ascontiguousarray(names).view(f"S{width}").ravel().tolist() if count else []
    try:
        seen = {row.decode(): number for row, number in zip(rows, steps.tolist(), strict=True)}
    except UnicodeDecodeError:
        raise ValueError("expected actors in UTF-8, got other bytes") from None
    if len(seen) != count:
        raise ValueError("expected each actor once, got one twice")
    return seen
