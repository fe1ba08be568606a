"""Numbers of an environment beside those of its reference: which disagree, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aclearn.errors import AclearnError
from aclearn.types import ActionSpec

Arrays = NDArray[Any]
#: Numbers by name, `[M]` or `[M, …]` each.
Fields = Mapping[str, Arrays]
#: Words for a place in the leading axes of an array: "environment 3".
Where = Callable[..., str]
#: Of a field without one.
_TOLERANCE = 1e-5


class ParityError(AclearnError):
    """A resident environment and its reference disagree."""


@dataclass(frozen=True)
class ParityReport:
    """What a check compared.

    Attributes:
        excluded: steps whose end lies within tolerance of a threshold: both answers are right.
        largest: largest absolute difference of each field, "observation[i]" and "reward".
    """

    steps: int
    episodes: int
    excluded: int
    largest: Mapping[str, float]


class Differences:
    """Raises where integers differ, or floats by more than an absolute tolerance.

    Args:
        name: of the environment.
        tolerance: of every field, or by name; 1e-5 for those without one.
        periods: name of a field that is an angle → its period.

    Attributes:
        largest: largest absolute difference of each field.
    """

    def __init__(
        self, name: str, tolerance: Mapping[str, float] | float, periods: Mapping[str, float]
    ) -> None:
        self._name, self._tolerance, self._periods = name, tolerance, periods
        self.largest: dict[str, float] = {}

    def tolerance(self, name: str) -> float:
        """Of a field, of which "observation[2]" is one of "observation"."""
        if isinstance(self._tolerance, Mapping):
            return self._tolerance.get(name.partition("[")[0], _TOLERANCE)
        return self._tolerance

    def compare(
        self, name: str, found: Arrays, expected: Arrays, *, counts: Arrays, where: Where
    ) -> None:
        """Compare a field where `counts` is true, which has its leading axes.

        Raises:
            ParityError: they disagree; names the field, the place and both values.
        """
        exact = not np.issubdtype(found.dtype, np.floating)
        with np.errstate(invalid="ignore"):
            distance = np.abs(found.astype(np.float64) - np.asarray(expected))
        if (period := self._periods.get(name)) is not None:
            distance = np.minimum(distance, np.abs(period - distance))
        distance = distance.reshape(*counts.shape, -1).max(-1, initial=0.0)
        # written so that NaN disagrees
        wrong = counts & ~(distance <= (0.0 if exact else self.tolerance(name)))
        if wrong.any():
            place = tuple(np.argwhere(wrong)[0].tolist())
            raise self.disagreement(name, found[place], np.asarray(expected)[place], where(*place))
        most = float(distance[counts].max(initial=0.0))
        self.largest[name] = max(self.largest.get(name, 0.0), most)

    def disagreement(self, name: str, found: Any, expected: Any, where: str) -> ParityError:
        """The error for these values."""
        return ParityError(
            f"{self._name}: {name} of {where}: the environment has {found!r}, the reference "
            f"{expected!r}, tolerance {self.tolerance(name):g}"
        )


def moved_states(state: Fields, differences: Differences) -> Iterator[Fields]:
    """A state with one of its floats moved by its tolerance, each in turn and both ways."""
    for name, value in state.items():
        if not np.issubdtype(value.dtype, np.floating):
            continue
        for place in np.ndindex(value.shape):
            for sign in (-1.0, 1.0):
                moved = value.astype(np.float64)
                moved[place] += sign * differences.tolerance(name)
                yield {**state, name: moved}


def uniform_actions(
    spec: ActionSpec, count: int, rng: np.random.Generator, masks: Arrays | None = None
) -> Arrays:
    """Sampled actions: uniform choices, and numbers a little beyond their bounds.

    Args:
        masks: `[count, W]`, the choices that are allowed; None: all.
    """
    if masks is None:
        masks = np.ones((count, spec.mask_width), bool)
    columns: list[Arrays] = []
    if spec.counts:
        choices = np.split(masks, np.cumsum(spec.counts)[:-1], 1)
        columns = [(rng.random(each.shape) * each).argmax(1)[:, None] for each in choices]
    if spec.kind == "discrete":
        return columns[0][:, 0]
    if spec.numbers:
        columns.append(rng.uniform(-1.2, 1.2, (count, spec.numbers)))
    return np.concatenate(columns, 1).astype(spec.dtype if spec.numbers else np.int64)
