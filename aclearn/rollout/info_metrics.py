"""Figures that an environment puts into `info` at the end of an episode."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from aclearn.types import MOST_INFO_METRICS
from aclearn.types.bounds import LARGEST_FIGURE

_LOGGER = logging.getLogger(__name__)

_MOST_NAME_BYTES: Final = 48


def figure_name(path: str) -> str:
    """The name of a figure in metrics lines, without `info_`: `episode.r` → `episode_r`.

    It has letters of any alphabet, digits and underscores, so that every sink takes it.
    """
    name = re.sub(r"[\W_]+", "_", path.lower()).strip("_")
    return name.encode()[:_MOST_NAME_BYTES].decode(errors="ignore")


class InfoMetrics:
    """Reads `env.info_metrics` from infos. Nothing that an environment puts there is a fault.

    Args:
        paths: of the configuration: a key, keys of nested mappings with dots between them, or a
            mapping, of which every number is a figure.

    Attributes:
        refused: values so far that are no finite number, or cannot be read, or whose name is not
            among the first `MOST_INFO_METRICS` of this process, or is that of another key.
    """

    def __init__(self, paths: Sequence[str], name: str) -> None:
        self._paths, self._name = tuple(paths), name
        self.refused = 0
        self._said: set[str] = set()
        self._keys: dict[str, str] = {}  # name of a figure → the key that has it

    def __bool__(self) -> bool:
        return bool(self._paths)

    def read(self, info: Mapping[str, Any]) -> dict[str, float]:
        """The figures of an episode that has ended, by `figure_name`."""
        found: dict[str, float] = {}
        for path in self._paths:
            try:
                self._read(info, path, found)
            except Exception as error:  # of a user's mapping, key or value
                self._refuse(path, f"reading it raised {type(error).__name__}")
        return found

    def _read(self, info: Mapping[str, Any], path: str, found: dict[str, float]) -> None:
        """Add the figures that a configured path names to those found."""
        any_there = False
        for where, value in _values(info, path):
            any_there = True
            number, name = _number(value), figure_name(where)
            if number is None:
                what = f"{type(value).__name__} {value!r:.80}"
                self._refuse(where, f"expected a finite number, got {what}")
            elif name not in self._keys and len(self._keys) == MOST_INFO_METRICS:
                self._refuse(where, f"there are {MOST_INFO_METRICS} others")
            elif (first := self._keys.setdefault(name, where)) != where:
                self._refuse(where, f"its figure {name} is that of {first!r}")
            else:
                found[name] = number
        if not any_there:
            keys = ", ".join(sorted(map(str, info)))
            self._say(path, f"the info of an ended episode has no such key; its keys: {keys}")

    def _refuse(self, path: str, why: str) -> None:
        self.refused += 1
        self._say(path, why)

    def _say(self, path: str, what: str) -> None:
        """Log what is wrong with a figure, once."""
        if path in self._said or len(self._said) >= MOST_INFO_METRICS:
            return
        self._said.add(path)
        _LOGGER.warning(
            "event=info_metric_missing env=%s key=%r detail=%r", self._name, path, what[:400]
        )


def _values(info: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Path and value of each figure that a configured path names."""
    found: Any = info
    if path in info:  # a key with a dot in it
        found = info[path]
    else:
        for key in path.split("."):
            if not isinstance(found, Mapping) or key not in found:
                return
            found = found[key]
    if isinstance(found, Mapping):
        yield from ((f"{path}.{key}", value) for key, value in found.items())
    else:
        yield path, found


def _number(value: Any) -> float | None:
    """A number, a flag, or the only one of an array; None for anything else."""
    try:
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "biuf":
            return None
        number = float(array.reshape(-1)[0])
    except Exception:  # of a user's class that pretends to be an array
        return None
    return number if math.isfinite(number) and abs(number) <= LARGEST_FIGURE else None
