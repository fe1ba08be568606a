"""The hyper-parameters that evolve: their ranges, random values, changes of a value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

#: Dotted key of the configuration → value of a member.
Values = Mapping[str, float]


@dataclass(frozen=True)
class Parameter:
    """One hyper-parameter.

    Its scale is logarithmic where `low` is above 0: a learning rate of 1e-4 is as far from 1e-3 as
    1e-2 is. Else it is linear.

    Attributes:
        key: dotted key of the configuration.
        low: least value.
        high: largest value.
        whole: whether values are whole numbers.
        first: range of the first values, within the other one; None: the same.
    """

    key: str
    low: float
    high: float
    whole: bool = False
    first: tuple[float, float] | None = None

    def at(self, share: float) -> float:
        """The value at this share of the range, from 0 to 1; beyond it the nearest end."""
        share = min(max(share, 0.0), 1.0)
        if self.low > 0.0:
            value = math.exp(math.log(self.low) * (1.0 - share) + math.log(self.high) * share)
        else:
            value = self.low * (1.0 - share) + self.high * share
        return self.within(value)

    def share_of(self, value: float) -> float:
        """The share of the range at which `value` is."""
        if self.low > 0.0:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def within(self, value: float) -> float:
        """The nearest possible value."""
        value = float(round(value)) if self.whole else float(value)
        return min(max(value, self.low), self.high)

    def times(self, value: float, factor: float) -> float:
        """`value` times `factor`; a whole number changes by one at least."""
        changed = value * factor
        if self.whole and round(changed) == value and factor != 1.0:
            changed = value + math.copysign(1.0, factor - 1.0)
        return self.within(changed)


@dataclass(frozen=True)
class SearchSpace:
    """All hyper-parameters that evolve, by key."""

    parameters: Mapping[str, Parameter]

    @classmethod
    def of(cls, parameters: Sequence[Parameter]) -> SearchSpace:
        """The space of these."""
        return cls({each.key: each for each in parameters})

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters.values())

    def drawn(self, rng: np.random.Generator) -> dict[str, float]:
        """A value of each, uniform on its scale."""
        return {each.key: each.at(rng.random()) for each in self}

    def drawn_first(self, rng: np.random.Generator) -> dict[str, float]:
        """A value of each that a population may begin with."""
        ranges = (
            each if each.first is None else replace(each, low=each.first[0], high=each.first[1])
            for each in self
        )
        return {each.key: each.at(rng.random()) for each in ranges}

    def faults(self, values: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong with the values of a member, in sentences."""
        if set(values) != set(self.parameters):
            yield f"expected values of {sorted(self.parameters)}, got {sorted(values)}"
            return
        for each in self:
            value = values[each.key]
            if not isinstance(value, int | float) or each.within(float(value)) != value:
                yield (
                    f"{each.key}: expected a value from {each.low:g} to {each.high:g}, got "
                    f"{value!r:.100}"
                )
