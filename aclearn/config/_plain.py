"""Values that Python callers give: as data that a file can hold, or refused by their key."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping
from typing import Any

from aclearn.config._explain import got
from aclearn.config._yaml import DEEPEST

_SCALARS = (bool, int, float, str, type(None))


def plain(value: Any, depth: int = 0) -> Any:
    """NumPy's and torch's numbers as Python's, paths as text, inside of containers too.

    Everything else stays as it is.

    Raises:
        ValueError: nested too deeply for a file.
    """
    if type(value) in _SCALARS:
        return value
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return plain(value.item(), depth + 1)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, enum.Enum):
        return plain(value.value, depth + 1) if isinstance(value, int | float | str) else value
    if isinstance(value, Mapping):
        return {plain(key, depth + 1): plain(part, depth + 1) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain(part, depth + 1) for part in value)
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def not_plain(value: Any, key: str) -> Iterator[str]:
    """A sentence for each value that no file can hold; each begins with its dotted key."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            dotted = f"{key}.{name}" if key else str(name)
            if type(name) not in _SCALARS:
                yield f"{key}: got the key {got(name)}; expected text, a number or true or false"
            yield from not_plain(part, dotted)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield from not_plain(part, f"{key}[{index}]")
    elif type(value) not in _SCALARS:
        yield (
            f"{key}: got {got(value)}, which config.yaml cannot hold, and other processes read it "
            "there; expected null, true or false, a number, text, or lists, tuples and mappings of "
            "these. Name what you mean, and look it up in your own function (module:function)"
        )
