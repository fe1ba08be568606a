"""Parts of nested observations and actions, by their paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: Keys of Dict and indices of Tuple spaces that lead to a part; () for the whole.
Path = tuple[str | int, ...]


def at(whole: Any, path: Path) -> Any:
    """The part at a path."""
    for key in path:
        whole = whole[key]
    return whole


def nested(
    values: Mapping[Path, Any],
    *,
    as_dict: Callable[[dict[Any, Any]], Any] = dict,
    as_tuple: Callable[[tuple[Any, ...]], Any] = tuple,
) -> Any:
    """Dicts and tuples with the values at their paths; `at` finds each one.

    Indices with gaps become a Dict.
    """
    if () in values:
        return values[()]
    inner: dict[str | int, dict[Path, Any]] = {}
    for (key, *rest), value in values.items():
        inner.setdefault(key, {})[tuple(rest)] = value
    built = {key: nested(below, as_dict=as_dict, as_tuple=as_tuple) for key, below in inner.items()}
    if [*built] == [*range(len(built))]:
        return as_tuple(tuple(built.values()))
    return as_dict(built)
