"""Metrics lines as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.runs.metrics_file import TEXTS


def metrics_columns(lines: Sequence[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """One array for each name in any line, in the order of their first lines.

    Returns:
        Name → `[number of lines]`: float64, NaN where a line has no number; for texts an array of
        objects, None where a line has none. Nested figures are joined: `wait_share/actor/emulator`.
    """
    flat = [dict(_flattened(line)) for line in lines]
    names = dict.fromkeys(name for line in flat for name in line)
    return {name: _column(name, [line.get(name) for line in flat]) for name in names}


def _flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


def _column(name: str, values: Sequence[Any]) -> NDArray[Any]:
    text = name.rpartition("/")[2] in TEXTS  # where no line has one, too
    if text or any(isinstance(value, str) for value in values):
        return np.array(values, dtype=object)
    return np.array([np.nan if value is None else value for value in values], np.float64)
